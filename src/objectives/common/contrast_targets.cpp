#include "src/objectives/common/contrast_targets.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace tessera {
namespace {

bool all_differ(const at::Tensor& groups) {
  const at::Tensor sorted = std::get<0>(groups.sort());
  return !(sorted.slice(0, 1) == sorted.slice(0, 0, -1)).any().item<bool>();
}

}  // namespace

at::Tensor ContrastTargets::left_out(std::int64_t row, std::int64_t rows, std::int64_t column,
                                     std::int64_t columns) const {
  at::Tensor out;
  const auto add = [&](const at::Tensor& more) { out = out.defined() ? out.logical_or_(more) : more; };
  const auto of_rows = [&](const at::Tensor& all) { return all.narrow(0, row, rows).unsqueeze(1); };
  const auto of_columns = [&](const at::Tensor& all) { return all.narrow(0, column, columns); };
  if (duplicates.defined())
    for (const at::Tensor& kind : duplicates.unbind()) add(of_rows(kind) == of_columns(kind));
  if (present.defined()) add(of_rows(present).logical_and(of_columns(present)).logical_not_());
  const std::int64_t offset = row - column;
  if (out.defined() && offset < columns && -offset < rows) out.diagonal(offset).fill_(false);
  return out;
}

at::Tensor ContrastTargets::mean_of(const at::Tensor& sum, std::int64_t batch, const ProcessGroup& group) const {
  if (!present.defined()) return sum / static_cast<double>(batch);
  return sum * group.size() / present.sum().clamp_min(1);
}

void ContrastTargets::save(torch::autograd::AutogradContext* ctx) const {
  ctx->saved_data["duplicates"] = duplicates;
  ctx->saved_data["present"] = present;
  ctx->saved_data["smoothing"] = smoothing;
}

ContrastTargets ContrastTargets::saved(torch::autograd::AutogradContext* ctx) {
  auto& data = ctx->saved_data;
  return {data["duplicates"].toTensor(), data["present"].toTensor(), data["smoothing"].toDouble()};
}

at::Tensor all_duplicates(const DuplicateGroups& own, std::int64_t batch, const char* objective,
                          const ProcessGroup& group) {
  std::vector<at::Tensor> kinds;
  const auto add = [&](const at::Tensor& groups, const char* name) {
    if (!groups.defined()) return;
    TORCH_CHECK(groups.scalar_type() == at::kLong && groups.dim() == 1 && groups.size(0) == batch, objective, ": ",
                name, " must be [B] = [", batch, "] int64, got ", groups.sizes(), " ", groups.scalar_type());
    const at::Tensor all = group.all_gather(groups);
    // Usually all groups differ, and the tensor can be dropped. On a GPU it is kept, because the check would cost more than it saves.
    if (!all.is_cpu() || !all_differ(all)) kinds.push_back(all);
  };
  add(own.image_group, "image_group");
  add(own.caption_group, "caption_group");
  return kinds.empty() ? at::Tensor() : at::stack(kinds);
}

}  // namespace tessera
