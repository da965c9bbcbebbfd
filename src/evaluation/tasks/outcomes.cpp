#include "src/evaluation/tasks/outcomes.h"

#include <ATen/ATen.h>

namespace tessera {
namespace {

at::Tensor filled_in(const at::Tensor& rows, const at::Tensor& otherwise) {
  const at::Tensor out = rows.defined() ? rows.to(at::kCPU, otherwise.scalar_type()).contiguous() : otherwise;
  TORCH_CHECK(out.dim() == 1 && out.numel() == otherwise.numel(), "outcomes must have the same length, got ", out.sizes(),
              " and ", otherwise.sizes());
  return out;
}

}  // namespace

report::Outcomes make_outcomes(const std::string& metric, const OutcomeRows& rows) {
  const at::Tensor part = rows.part.to(at::kCPU, at::kDouble).contiguous();
  const std::int64_t count = part.numel();
  const at::Tensor whole = filled_in(rows.whole, at::ones({count}, at::kDouble));
  const at::Tensor sample = filled_in(rows.sample, at::arange(count, at::kLong));
  const at::Tensor group = filled_in(rows.group, at::zeros({count}, at::kLong));
  report::Outcomes out{metric, {}};
  out.entries.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    out.entries.push_back({sample.const_data_ptr<std::int64_t>()[i], part.const_data_ptr<double>()[i],
                           whole.const_data_ptr<double>()[i], group.const_data_ptr<std::int64_t>()[i]});
  return out;
}

report::Outcomes hits_within(const std::string& metric, const at::Tensor& ranks, std::int64_t k,
                             const at::Tensor& sample, const at::Tensor& group) {
  const at::Tensor rows = ranks.ge(0).nonzero().squeeze(1);
  const auto of_rows = [&](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.index_select(0, rows) : tensor;
  };
  return make_outcomes(metric, {.part = ranks.index_select(0, rows).lt(k),
                              .sample = sample.defined() ? of_rows(sample) : rows,
                              .group = of_rows(group)});
}

}  // namespace tessera
