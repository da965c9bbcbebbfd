#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/config/fields.h>
#include <tessera/distributed/process_group.h>
#include <tessera/objectives/objective.h>

namespace tessera {

/// Nested widths (Matryoshka representation learning, Kusupati et al., arXiv 2205.13147): loss = sum_m weight_m L(first width_m columns).
struct MatryoshkaSettings {
  std::vector<std::int64_t> widths;
  std::optional<std::vector<double>> weights;
};

void fields(auto& v, MatryoshkaSettings& s) {
  v("widths", s.widths, "the numbers of columns, in any order; the whole width is trained only if it is one of them");
  v("weights", s.weights, "weight of the loss at each width; null: 1 each", config::at_least(0.0));
}
std::optional<config::Problem> validate(const MatryoshkaSettings& settings);

inline constexpr const char* kMatryoshkaHelp =
    "also usable when cut: the loss is the sum of the losses on the first columns of both embeddings, each normalized anew, as in {widths: "
    "[64, 128, 256], weights: [1, 1, 1]}; null: only the whole width";

/// The nested widths of an objective on the embeddings of whole images and texts.
class Matryoshka {
 public:
  /// Throws UserError naming the objective if a width exceeds that of the model's embeddings.
  Matryoshka(const std::optional<MatryoshkaSettings>& settings, const char* objective, const ObjectiveContext& context);

  /// Returns the widths; empty if there is only the whole one.
  const std::vector<std::int64_t>& widths() const { return widths_; }
  explicit operator bool() const { return !widths_.empty(); }
  /// Returns the names that terms have at each width, such as loss_i2t_64; the names themselves if there is only the whole width.
  std::vector<std::string> names(const std::vector<std::string>& terms) const;
  /// Throws UserError if there are widths and `setting` of the objective, which knows no widths, is used.
  void refuse(const char* setting, bool used) const;

  /// Computes the loss at each width, and their weighted sum. images: [B, D]; texts: [B, K, D]. `loss` receives rows of unit length (or 0);
  /// with several ranks and nested widths, these are the texts of all ranks, [C, K, w], which are gathered once. The terms are `loss_<w>`
  /// and those of `loss` as names() spells them, all without weights.
  using LossOfRows = std::function<Losses(const at::Tensor& images, const at::Tensor& texts)>;
  Losses loss(const at::Tensor& images, const at::Tensor& texts, const ProcessGroup& group, const LossOfRows& loss) const;

 private:
  const char* objective_;
  std::vector<std::int64_t> widths_;
  std::vector<double> weights_;
};

}  // namespace tessera
