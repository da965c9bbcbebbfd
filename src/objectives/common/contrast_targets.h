#pragma once

#include <ATen/core/Tensor.h>

#include <tessera/distributed/process_group.h>
#include <tessera/features.h>

namespace torch::autograd {
struct AutogradContext;
}

namespace tessera {

/// What the softmax of each pair's row and column of similarities is compared with: the pair itself, or mostly the
/// pair. A default one stands for C pairs that all differ and are all there.
struct ContrastTargets {
  at::Tensor duplicates;  // int64 [kinds, C]: two pairs with equal numbers in one row are no negatives of each other
  at::Tensor present;     // bool [C]: pairs of the global batch that take part; undefined: all
  double smoothing = 0;   // the target is 1 - smoothing at the pair itself; its negatives share the rest equally

  /// Pairs row, ..., row + rows - 1 beside column, ..., by their places in the global batch: bool [rows, columns], true
  /// where two different pairs are no negatives of each other, and so count in no sum. Undefined: all count.
  at::Tensor left_out(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) const;
  /// A sum over the own `batch` pairs, to which absent ones add 0, as a mean over pairs. Over ranks: over the mean
  /// number of present pairs per rank, so that the mean of the ranks is the global batch's.
  at::Tensor mean_of(const at::Tensor& sum, std::int64_t batch, const ProcessGroup& group) const;

  /// Keeps the targets for the backward pass of an autograd function.
  void save(torch::autograd::AutogradContext* ctx) const;
  static ContrastTargets saved(torch::autograd::AutogradContext* ctx);
};

/// The groups of all ranks' pairs, as ContrastTargets::duplicates has them; undefined if no two pairs are duplicates.
/// Throws c10::Error when they are not [B] int64.
at::Tensor all_duplicates(const DuplicateGroups& own, std::int64_t batch, const char* objective,
                          const ProcessGroup& group);

}  // namespace tessera
