#pragma once

#include <ATen/core/Tensor.h>

#include <tessera/distributed/process_group.h>
#include <tessera/features.h>

namespace tessera {

/// Which pairs of the global batch show the same picture or carry the same caption, and so are no negatives of each
/// other. A default one, like one from features without ids, knows of none.
class DuplicatePairs {
 public:
  DuplicatePairs() = default;
  /// ids of all pairs, [kinds, C] int64: two pairs share something where one of the rows agrees.
  explicit DuplicatePairs(at::Tensor ids) : ids_(std::move(ids)) {}
  /// Brings the ids of all ranks together, if they are wanted and there are any. Throws c10::Error when they are not
  /// [B] int64.
  static DuplicatePairs of(const Features& features, bool wanted, const char* objective, const ProcessGroup& group);

  bool none() const { return !ids_.defined(); }
  /// Pairs row, ..., row + rows - 1 beside column, ..., by their places in the global batch: bool [rows, columns], true
  /// where two different pairs share something. Undefined if there are none at all.
  at::Tensor among(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) const;
  /// For the backward pass of an autograd function; undefined for none.
  const at::Tensor& ids() const { return ids_; }

 private:
  at::Tensor ids_;
};

}  // namespace tessera
