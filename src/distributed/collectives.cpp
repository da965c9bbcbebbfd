#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include "src/distributed/saved_group.h"
#include <tessera/distributed/collectives.h>

namespace tessera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class GatherRows : public torch::autograd::Function<GatherRows> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& own, const ProcessGroup& group) {
    save_group(ctx, group);
    return group.all_gather(own);
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    return {saved_group(ctx).reduce_scatter(gradients[0]), {}};
  }
};

// Splits rows [n, k * m] into blocks [k, n, m]. Block i is sent to rank i.
at::Tensor column_blocks(const at::Tensor& rows, std::int64_t ranks) {
  return rows.reshape({rows.size(0), ranks, rows.size(1) / ranks}).transpose(0, 1);
}

class RowsToColumns : public torch::autograd::Function<RowsToColumns> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& rows, const ProcessGroup& group) {
    save_group(ctx, group);
    return group.all_to_all(column_blocks(rows, group.size())).flatten(0, 1);
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const ProcessGroup& group = saved_group(ctx);
    const std::int64_t own = gradients[0].size(1);
    const at::Tensor blocks = group.all_to_all(gradients[0].reshape({group.size(), own, own}));
    return {blocks.transpose(0, 1).flatten(1), {}};
  }
};

class SumOverRanks : public torch::autograd::Function<SumOverRanks> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& own, const ProcessGroup& group) {
    save_group(ctx, group);
    return summed(own, group);
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    return {summed(gradients[0], saved_group(ctx)), {}};
  }

 private:
  static at::Tensor summed(const at::Tensor& own, const ProcessGroup& group) {
    at::Tensor sum = own.clone(at::MemoryFormat::Contiguous);
    group.all_reduce(sum);
    return sum;
  }
};

}  // namespace

at::Tensor gather_rows(const at::Tensor& own, const ProcessGroup& group) {
  if (group.alone()) return own;
  return own.requires_grad() ? GatherRows::apply(own, group) : group.all_gather(own);
}

at::Tensor rows_to_columns(const at::Tensor& rows, const ProcessGroup& group) {
  return group.alone() ? rows : RowsToColumns::apply(rows, group);
}

at::Tensor sum_over_ranks(const at::Tensor& own, const ProcessGroup& group) {
  return group.alone() ? own : SumOverRanks::apply(own, group);
}

}  // namespace tessera
