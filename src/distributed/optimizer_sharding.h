#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/distributed/process_group.h>

namespace tessera {

/// A range of a tensor's elements, in the order in which they lie in memory.
struct Piece {
  std::size_t tensor = 0;
  std::int64_t begin = 0, end = 0;
};

/// Returns all elements of a dense tensor in the order in which they lie in memory, [numel]. The result shares the tensor's memory.
at::Tensor elements_of(const at::Tensor& tensor);

/// Divides the elements of tensors evenly among ranks (ZeRO, Rajbhandari et al. 2020, section 5). The tensors are divided in groups of up to
/// bucket_mb MiB, and every rank owns a part of every group: at most one piece of each tensor. A piece begins at a multiple of 1,024 elements,
/// so that operators which process several elements at a time treat each element as in the whole tensor. In a group of n elements, a rank
/// owns at most n / W + 1,024 of them. All ranks must pass tensors of the same shapes and types in the same order.
class FlatShards {
 public:
  /// Tensors for which `whole` is true are not divided: each of them belongs to one rank (balanced_owners()).
  FlatShards(std::vector<at::Tensor> tensors, const std::vector<bool>& whole, ProcessGroup group, double bucket_mb);

  /// What the ranks exchange at a time: equally many elements of each rank, up to bucket_mb MiB, which may be a part of a large tensor; or, if
  /// `owner` is set, one tensor that belongs to that rank.
  struct Bucket {
    std::vector<std::size_t> tensors;
    std::vector<std::vector<Piece>> of_rank;  // empty if `owner` is set
    std::int64_t slice = 0;                   // the largest number of elements of a rank
    std::optional<int> owner;
  };

  const ProcessGroup& group() const { return group_; }
  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  const std::vector<Piece>& pieces(int rank) const { return pieces_[static_cast<std::size_t>(rank)]; }
  /// This rank's piece of a tensor; nullopt if it owns no element of the tensor.
  const std::optional<Piece>& own(std::size_t tensor) const { return own_[tensor]; }

  /// Replaces the elements that other ranks own by these ranks' values. Collective. Sends the bytes of all tensors once.
  void distribute() const;
  /// Brings values that belong to the tensors' elements to rank 0. Collective. `own`: for each tensor this rank's values, [elements of its
  /// piece]; undefined on all ranks if the tensor has none, and of any content if this rank owns no element. On rank 0, returns values in the
  /// shapes of the tensors, in host memory; on other ranks, an empty list.
  std::vector<at::Tensor> gather(const std::vector<at::Tensor>& own) const;

 private:
  std::vector<std::vector<Piece>> divided(const std::vector<std::size_t>& tensors) const;
  void add_buckets(const std::vector<std::vector<Piece>>& of_rank);
  void add(const std::vector<std::vector<Piece>>& of_rank);

  std::vector<at::Tensor> tensors_;
  ProcessGroup group_;
  double bucket_mb_;
  std::vector<Bucket> buckets_;
  std::vector<std::vector<Piece>> pieces_;  // [rank]
  std::vector<std::optional<Piece>> own_;
};

/// The gradients of a FlatShards' tensors, of which this rank keeps only its own elements (ZeRO stage 2).
struct GradientShards {
  explicit GradientShards(std::shared_ptr<const FlatShards> shards) : of(std::move(shards)), own(of->tensors().size()) {}
  const std::shared_ptr<const FlatShards> of;
  /// For each tensor the gradient of this rank's elements: [n], for a tensor that is not divided the tensor's shape, and [0] if this rank
  /// owns none. Undefined if no rank has a gradient.
  std::vector<at::Tensor> own;
};

/// Assigns whole tensors to ranks so that all ranks own about equally many elements. Tensors are assigned from the largest to the smallest,
/// each to the rank with the fewest elements so far (the lowest rank on a tie). No rank gets more elements than the mean over the ranks
/// plus the size of the largest tensor. Returns the owner of each tensor, the same on every rank.
std::vector<int> balanced_owners(const std::vector<at::Tensor>& tensors, int ranks);

}  // namespace tessera
