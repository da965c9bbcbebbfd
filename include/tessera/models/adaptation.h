#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <tessera/models/dual_encoder.h>
#include <tessera/models/lora.h>

namespace tessera {

/// How one tower's encoder is adapted.
struct TowerAdaptation {
  std::optional<LoraSettings> lora;
};

template <class Visitor>
void fields(Visitor& v, TowerAdaptation& s) {
  v("lora", s.lora, "low-rank adapters: {rank: 8}");
}

/// An adaptation needs a kind.
std::optional<config::Problem> validate(const TowerAdaptation& settings);

/// What is trained in place of an encoder's own weights.
struct AdaptSettings {
  std::optional<TowerAdaptation> image, text;
};

template <class Visitor>
void fields(Visitor& v, AdaptSettings& s) {
  constexpr const char* kHelp =
      "low-rank adapters in the blocks of this tower's encoder, whose own weights are frozen: {lora: {rank: 8}}, with the settings "
      "of LoRA below; null: none";
  v("image", s.image, kHelp);
  v("text", s.text, kHelp);
}

/// Gives the encoders the adapters that the settings name, `lora_*` beside the weights that they adapt
/// (visual.transformer.resblocks.0.attn.lora_query_a). The matrices A follow from the seed; what the model computes is
/// unchanged. LibTorch's default generator is seeded anew if there are any. Throws UserError where a tower is missing or has
/// no transformer blocks, or where rank, layers or blocks do not fit.
void adapt(DualEncoder& model, const AdaptSettings& settings, std::uint64_t seed);

/// Whether a name of a model's state is an adapter's.
bool is_adapter(const std::string& name);

/// What an adapter does to a weight, by names of the model's state: rows first .. first + rows of `weight` += scale * b a.
struct WeightUpdate {
  std::string weight;
  std::int64_t first = 0, rows = 0;
  std::string a, b;
  double scale = 1;
};

/// Of all adapters of a model.
std::vector<WeightUpdate> weight_updates(const DualEncoder& model);

/// Weights as a model without adapters has them: the updates are made (in float64, on the CPU, so that every machine gets the
/// same), the adapters left out, the rest shared.
std::map<std::string, at::Tensor> merged(const std::map<std::string, at::Tensor>& weights,
                                         const std::vector<WeightUpdate>& updates);
/// What merged() does not let see: the weights that are updated, as they are, and the adapters.
std::map<std::string, at::Tensor> unmerged(const std::map<std::string, at::Tensor>& weights,
                                           const std::vector<WeightUpdate>& updates);

/// While it lives, a model's weights are the merged ones, and it computes as one without adapters.
class MergedAdapters {
 public:
  explicit MergedAdapters(DualEncoder& model);
  ~MergedAdapters();
  MergedAdapters(const MergedAdapters&) = delete;
  MergedAdapters& operator=(const MergedAdapters&) = delete;

 private:
  void set_merged(bool merged);

  DualEncoder& model_;
  std::vector<std::pair<at::Tensor, at::Tensor>> kept_;  // a weight, and its values before
};

}  // namespace tessera
