#include "src/objectives/common/duplicate_pairs.h"

#include <ATen/ATen.h>

namespace tessera {
namespace {

bool all_differ(const at::Tensor& ids) {
  const at::Tensor sorted = std::get<0>(ids.sort());
  return !(sorted.slice(0, 1) == sorted.slice(0, 0, -1)).any().item<bool>();
}

}  // namespace

DuplicatePairs DuplicatePairs::of(const Features& features, bool wanted, const char* objective, const ProcessGroup& group) {
  if (!wanted) return {};
  const std::int64_t batch =
      features.image().global.defined() ? features.image().global.size(0) : features.image().tokens.size(0);
  std::vector<at::Tensor> kinds;
  const auto add = [&](const at::Tensor& own, const char* name) {
    if (!own.defined()) return;
    TORCH_CHECK(own.scalar_type() == at::kLong && own.dim() == 1 && own.size(0) == batch, objective, ": ", name,
                " must be [B] = [", batch, "] int64, got ", own.sizes(), " ", own.scalar_type());
    const at::Tensor all = group.all_gather(own);
    // The usual case; finding out costs a GPU more than it saves.
    if (!all.is_cpu() || !all_differ(all)) kinds.push_back(all);
  };
  add(features.duplicates.image_group, "image_group");
  add(features.duplicates.caption_group, "caption_group");
  return kinds.empty() ? DuplicatePairs() : DuplicatePairs(at::stack(kinds));
}

at::Tensor DuplicatePairs::among(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) const {
  if (none()) return {};
  at::Tensor out;
  for (std::int64_t kind = 0; kind < ids_.size(0); ++kind) {
    const at::Tensor ids = ids_.select(0, kind);
    const at::Tensor same = ids.narrow(0, row, rows).unsqueeze(1) == ids.narrow(0, column, columns);
    out = out.defined() ? out.logical_or_(same) : same;
  }
  const std::int64_t offset = row - column;
  if (offset < columns && -offset < rows) out.diagonal(offset).fill_(false);
  return out;
}

}  // namespace tessera
