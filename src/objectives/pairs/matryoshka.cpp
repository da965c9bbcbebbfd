#include "src/objectives/pairs/matryoshka.h"

#include <algorithm>
#include <set>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/distributed/collectives.h>
#include <tessera/ops/numeric.h>

namespace tessera {

std::optional<config::Problem> validate(const MatryoshkaSettings& s) {
  if (s.widths.empty()) return config::Problem{"widths", "is empty: name at least one width, such as [64, 128, 256]"};
  std::set<std::int64_t> seen;
  for (const std::int64_t width : s.widths) {
    if (width < 1) return config::Problem{"widths", concat("must be at least 1, got ", width)};
    if (!seen.insert(width).second) return config::Problem{"widths", concat("has ", width, " twice: name each width once")};
  }
  if (!s.weights) return std::nullopt;
  if (s.weights->size() != s.widths.size())
    return config::Problem{"weights", concat("has ", s.weights->size(), " numbers for ", s.widths.size(), " widths: give one for each width")};
  return std::nullopt;
}

Matryoshka::Matryoshka(const std::optional<MatryoshkaSettings>& settings, const char* objective, const ObjectiveContext& context)
    : objective_(objective) {
  if (!settings) return;
  widths_ = settings->widths;
  weights_ = settings->weights.value_or(std::vector<double>(widths_.size(), 1.0));
  const std::int64_t most = *std::ranges::max_element(widths_);
  if (most > context.embed_dim)
    user_error("objective ", objective_, ": matryoshka.widths has ", most, ", but the embeddings are ", context.embed_dim,
               " wide: leave it out, or make model.*.projection.embed_dim larger");
}

std::vector<std::string> Matryoshka::names(const std::vector<std::string>& terms) const {
  if (widths_.empty()) return terms;
  std::vector<std::string> out;
  for (const std::int64_t width : widths_)
    for (const std::string& term : terms) out.push_back(concat(term, "_", width));
  return out;
}

void Matryoshka::refuse(const char* setting, bool used) const {
  if (used && !widths_.empty())
    user_error("objective ", objective_, ": matryoshka does not work with ", setting, ": leave out one of the two");
}

Losses Matryoshka::loss(const at::Tensor& images, const at::Tensor& texts, const ProcessGroup& group, const LossOfRows& loss) const {
  if (widths_.empty()) return loss(unit_rows(images), unit_rows(texts));
  const at::Tensor all = gather_rows(texts, group);
  Losses sum;
  for (std::size_t i = 0; i < widths_.size(); ++i) {
    const auto cut = [&](const at::Tensor& rows) { return unit_rows(rows.narrow(-1, 0, widths_[i])); };
    const Losses one = loss(cut(images), cut(all));
    sum.add(concat("loss_", widths_[i]), weights_[i], one.total);
    for (const auto& [name, value] : one.terms) sum.terms.emplace_back(concat(name, "_", widths_[i]), value);
  }
  return sum;
}

}  // namespace tessera
