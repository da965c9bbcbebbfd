#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "src/distributed/gradient_reducer.h"
#include "src/distributed/optimizer_sharding.h"

namespace tessera {

/// Averages gradients so that each rank gets only its own elements (ZeRO stage 2, Rajbhandari et al. 2020, section 5.2). As soon as all
/// gradients of a bucket are computed, they move into a buffer, and a reduce-scatter of this buffer runs while the backward pass goes on. All
/// ranks send the buckets in the same order, from the last parameters to the first; buckets that a pass has not filled follow at its end.
class ShardReducer : public GradientReducer::Impl {
 public:
  ShardReducer(std::vector<at::Tensor> parameters, std::shared_ptr<GradientShards> shards, Compression compression);
  void backward(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients, BackwardPass pass) override;

  /// The most bytes that averaged gradients take on this rank: those of its elements, and the buffers of a bucket that is being filled and of
  /// those that are being exchanged.
  static std::int64_t most_bytes(const FlatShards& shards);

 private:
  /// A bucket in this pass.
  struct State {
    std::size_t computed = 0;  // parameters with a gradient in this pass
    at::Tensor sent;           // [W, slice]; the parameter's shape if the bucket has an owner; undefined before the first gradient
  };
  struct Sent {
    std::size_t bucket;
    at::Tensor all, own;  // what this rank sends, and what it receives
    ProcessGroup::Transfer transfer;
  };

  void take(std::size_t index, at::Tensor& gradient);
  at::Tensor buffer_of(std::size_t bucket) const;
  void send_next();
  void receive_oldest();
  void add_to_own(const Piece& piece, const at::Tensor& values);
  void agree_on_used();

  const std::vector<at::Tensor> parameters_;
  const std::shared_ptr<GradientShards> shards_;
  const Compression compression_;
  std::vector<std::size_t> order_;  // the buckets in the order in which they are sent
  struct Place {
    Piece piece;
    std::int64_t at = 0;  // where the piece begins in the bucket's buffer
  };
  std::vector<std::map<std::size_t, std::vector<Place>>> places_;  // of each parameter, by bucket
  std::vector<State> states_;  // of each bucket
  std::vector<bool> used_before_;  // parameters with a gradient in an earlier pass of the step
  std::vector<bool> taken_;        // parameters with a gradient in this pass
  std::deque<Sent> in_flight_;
  std::size_t next_ = 0;  // place in order_ of the bucket to send next
  bool reducing_ = false;
  std::unique_ptr<GradientWatch> watch_;
};

}  // namespace tessera
