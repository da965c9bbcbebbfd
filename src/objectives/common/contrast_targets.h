#pragma once

#include <ATen/core/Tensor.h>

#include <tessera/distributed/process_group.h>
#include <tessera/features.h>

namespace torch::autograd {
struct AutogradContext;
}

namespace tessera {

/// Each of the C pairs has two softmaxes, over its row and over its column of similarities. In both softmaxes, the target is the pair
/// itself; with smoothing, the pair's negatives get a part of the target. A default-constructed object means that all pairs differ and are
/// present.
struct ContrastTargets {
  at::Tensor duplicates;  // int64 [kinds, C], each pair's group per kind of duplicate; pairs of one group are not each other's negatives
  at::Tensor present;     // bool [C]: true for present pairs of the global batch; undefined if all are present
  double smoothing = 0;   // the pair itself has the target 1 - smoothing; its negatives share the rest equally

  /// Returns bool [rows, columns], the block of the global batch's matrix [C, C] that starts at (row, column). The entry for two different
  /// pairs is true if these pairs are duplicates or one of them is absent; sums ignore such entries. Returns an undefined tensor if
  /// `duplicates` and `present` are undefined.
  at::Tensor left_out(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) const;
  /// Turns a sum over this rank's `batch` pairs, to which absent pairs contribute 0, into a mean over present pairs. With several
  /// ranks it divides by the mean number of present pairs per rank, so that the mean of the results over ranks is the mean over the
  /// global batch.
  at::Tensor mean_of(const at::Tensor& sum, std::int64_t batch, const ProcessGroup& group) const;

  /// Saves the targets for the backward pass of an autograd function.
  void save(torch::autograd::AutogradContext* ctx) const;
  static ContrastTargets saved(torch::autograd::AutogradContext* ctx);
};

/// Gathers the duplicate groups of all ranks' pairs for ContrastTargets::duplicates. Returns an undefined tensor if no two pairs
/// are duplicates. Throws c10::Error if a tensor of groups is not int64 [B].
at::Tensor all_duplicates(const DuplicateGroups& own, std::int64_t batch, const char* objective,
                          const ProcessGroup& group);

}  // namespace tessera
