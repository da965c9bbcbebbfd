#pragma once

#include <ATen/core/Tensor.h>

#include <tessera/distributed/process_group.h>
#include <tessera/features.h>

namespace torch::autograd {
struct AutogradContext;
}

namespace tessera {

/// The targets of the softmaxes over each pair's row and column of similarities: the pair itself or, with smoothing, mostly the
/// pair. A default-constructed object means that all C pairs differ and are present.
struct ContrastTargets {
  at::Tensor duplicates;  // int64 [kinds, C]: two pairs with equal numbers in any row are not negatives of each other
  at::Tensor present;     // bool [C]: pairs of the global batch that are present; undefined: all
  double smoothing = 0;   // the target is 1 - smoothing at the pair itself; its negatives share the rest equally

  /// For the pairs row, ..., row + rows - 1 and column, ..., column + columns - 1 of the global batch, returns bool [rows, columns]:
  /// true where two different pairs are not negatives of each other and are ignored in sums. Undefined: none are ignored.
  at::Tensor left_out(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) const;
  /// Turns a sum over this rank's `batch` pairs, in which absent pairs are 0, into a mean over present pairs. With several ranks it
  /// divides by the mean number of present pairs per rank, so that the mean over ranks is the mean over the global batch.
  at::Tensor mean_of(const at::Tensor& sum, std::int64_t batch, const ProcessGroup& group) const;

  /// Keeps the targets for the backward pass of an autograd function.
  void save(torch::autograd::AutogradContext* ctx) const;
  static ContrastTargets saved(torch::autograd::AutogradContext* ctx);
};

/// Gathers the duplicate groups of all ranks' pairs for ContrastTargets::duplicates; undefined if no two pairs are duplicates.
/// Throws c10::Error if they are not [B] int64.
at::Tensor all_duplicates(const DuplicateGroups& own, std::int64_t batch, const char* objective,
                          const ProcessGroup& group);

}  // namespace tessera
