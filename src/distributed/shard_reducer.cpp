#include "src/distributed/shard_reducer.h"

#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "src/distributed/connection.h"

namespace tessera {
namespace {

constexpr std::size_t kMostInFlight = 2;  // buckets whose buffers are in memory while the ranks exchange them

}  // namespace

ShardReducer::ShardReducer(std::vector<at::Tensor> parameters, std::shared_ptr<GradientShards> shards, Compression compression)
    : parameters_(std::move(parameters)),
      shards_(std::move(shards)),
      compression_(compression),
      order_(shards_->of->buckets().size()),
      places_(parameters_.size()),
      states_(order_.size()),
      used_before_(parameters_.size()) {
  const std::vector<FlatShards::Bucket>& buckets = shards_->of->buckets();
  TORCH_CHECK(parameters_.size() == shards_->of->tensors().size(), "gradient reducer: the shards belong to other parameters");
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    if (buckets[b].owner) places_[buckets[b].tensors[0]][b] = {{{buckets[b].tensors[0], 0, parameters_[buckets[b].tensors[0]].numel()}, 0}};
    for (std::size_t rank = 0; rank < buckets[b].of_rank.size(); ++rank) {
      std::int64_t at = static_cast<std::int64_t>(rank) * buckets[b].slice;
      for (const Piece& piece : buckets[b].of_rank[rank]) {
        places_[piece.tensor][b].push_back({piece, at});
        at += piece.end - piece.begin;
      }
    }
  }
  // Gradients become ready from the last layer to the first, so a bucket is full when its first parameter is ready.
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  std::ranges::stable_sort(order_, std::greater(), [&](std::size_t b) { return buckets[b].tensors.front(); });
  watch_ = std::make_unique<GradientWatch>(parameters_, [this](std::size_t index, at::Tensor& gradient) {
    if (reducing_) take(index, gradient);
  });
}

std::int64_t ShardReducer::most_bytes(const FlatShards& shards) {
  std::int64_t own = 0, largest = 0;
  for (const Piece& piece : shards.pieces(shards.group().rank()))
    own += (piece.end - piece.begin) * shards.tensors()[piece.tensor].element_size();
  for (const FlatShards::Bucket& bucket : shards.buckets()) {
    const at::Tensor& first = shards.tensors()[bucket.tensors[0]];
    const std::int64_t elements = bucket.owner ? first.numel() : shards.group().size() * bucket.slice;
    largest = std::max(largest, elements * static_cast<std::int64_t>(first.element_size()));
  }
  return own + (kMostInFlight + 1) * largest;
}

void ShardReducer::backward(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients, BackwardPass pass) {
  reducing_ = pass != BackwardPass::few;
  if (reducing_) {
    states_.assign(states_.size(), {});
    taken_.assign(parameters_.size(), false);
    in_flight_.clear();
    next_ = 0;
    for (std::size_t i = 0; i < parameters_.size(); ++i) used_before_[i] = shards_->own[i].defined();
  }
  torch::autograd::backward(outputs, gradients);
  if (!reducing_) return;
  const at::NoGradGuard no_grad;
  // An earlier pass may have left gradients of parameters that this pass has not used.
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (at::Tensor& gradient = parameters_[i].mutable_grad(); gradient.defined()) take(i, gradient);
  while (next_ < order_.size()) send_next();
  while (!in_flight_.empty()) receive_oldest();
  agree_on_used();
}

// Moves a gradient into the buffers of its buckets, and sends all buckets that are full.
void ShardReducer::take(std::size_t index, at::Tensor& gradient) {
  TORCH_CHECK(!taken_[index], "gradient reducer: a backward pass has computed a gradient twice");
  taken_[index] = true;
  at::Tensor values = std::exchange(gradient, at::Tensor());
  if (values.strides() != parameters_[index].strides()) values = at::empty_like(parameters_[index]).copy_(values);
  const at::Tensor elements = elements_of(values);
  // As c10d::Reducer does, divides before the sum; bfloat16 sums are divided after it.
  const int ranks = shards_->of->group().size();
  for (const auto& [b, places] : places_[index]) {
    at::Tensor& sent = states_[b].sent;
    if (!sent.defined()) sent = buffer_of(b);
    for (const auto& [piece, at] : places) {
      at::Tensor to = sent.slice(0, at, at + piece.end - piece.begin);
      const at::Tensor from = elements.slice(0, piece.begin, piece.end);
      if (compression_ == Compression::bf16)
        to.copy_(from);
      else
        at::mul_out(to, from, at::scalar_tensor(1.0 / ranks, from.options().device(at::kCPU)));
    }
    ++states_[b].computed;
    while (next_ < order_.size() && states_[order_[next_]].computed == shards_->of->buckets()[order_[next_]].tensors.size()) send_next();
  }
}

// Returns a buffer for what a rank sends of a bucket: the ranks' slices, or the elements of a tensor that is not divided.
at::Tensor ShardReducer::buffer_of(std::size_t b) const {
  const FlatShards::Bucket& bucket = shards_->of->buckets()[b];
  const at::Tensor& first = parameters_[bucket.tensors[0]];
  const at::ScalarType type = compression_ == Compression::bf16 ? at::kBFloat16 : first.scalar_type();
  return at::empty({bucket.owner ? first.numel() : shards_->of->group().size() * bucket.slice}, first.options().requires_grad(false).dtype(type));
}

// Starts the exchange of the next bucket. Zeros take the place of gradients that this rank does not have.
void ShardReducer::send_next() {
  const std::size_t b = order_[next_++];
  const FlatShards::Bucket& bucket = shards_->of->buckets()[b];
  const ProcessGroup& group = shards_->of->group();
  while (in_flight_.size() >= kMostInFlight) receive_oldest();
  Sent sent{.bucket = b, .all = std::exchange(states_[b].sent, at::Tensor()), .own = {}, .transfer = {}};
  if (!sent.all.defined()) sent.all = buffer_of(b);
  for (const std::size_t index : bucket.tensors)
    if (!taken_[index])
      for (const auto& [piece, at] : places_[index].at(b)) sent.all.slice(0, at, at + piece.end - piece.begin).zero_();
  if (bucket.owner) {
    sent.own = sent.all;
    sent.transfer = group.connection()->start_reduce(sent.all, *bucket.owner);
  } else {
    sent.own = at::empty({bucket.slice}, sent.all.options());
    sent.transfer = group.connection()->start_reduce_scatter(sent.own, sent.all);
  }
  in_flight_.push_back(std::move(sent));
}

// Waits for the oldest exchange, and keeps this rank's elements.
void ShardReducer::receive_oldest() {
  const at::NoGradGuard no_grad;
  Sent sent = std::move(in_flight_.front());
  in_flight_.pop_front();
  sent.transfer.wait();
  sent.all.reset();
  const FlatShards::Bucket& bucket = shards_->of->buckets()[sent.bucket];
  const ProcessGroup& group = shards_->of->group();
  if (compression_ == Compression::bf16) sent.own = sent.own.to(parameters_[bucket.tensors[0]].scalar_type()).div_(group.size());
  if (bucket.owner) {
    const std::size_t index = bucket.tensors[0];
    if (*bucket.owner == group.rank()) add_to_own({index, 0, parameters_[index].numel()}, sent.own);
    return;
  }
  std::int64_t at = 0;
  for (const Piece& piece : bucket.of_rank[static_cast<std::size_t>(group.rank())]) {
    const std::int64_t count = piece.end - piece.begin;
    add_to_own(piece, sent.own.slice(0, at, at + count));
    at += count;
  }
}

// Adds the averages of some of this rank's elements to those of earlier passes.
void ShardReducer::add_to_own(const Piece& piece, const at::Tensor& values) {
  const std::size_t index = piece.tensor;
  const at::Tensor& parameter = parameters_[index];
  const Piece& mine = *shards_->of->own(index);
  at::Tensor& own = shards_->own[index];
  if (!own.defined()) {
    const bool whole = shards_->of->buckets()[places_[index].begin()->first].owner.has_value();
    own = whole ? at::empty_like(parameter, parameter.options().requires_grad(false))
                : at::empty({mine.end - mine.begin}, parameter.options().requires_grad(false));
  }
  const at::Tensor part = elements_of(own).slice(0, piece.begin - mine.begin, piece.end - mine.begin);
  if (used_before_[index])
    part.add_(values);
  else
    part.copy_(values);
}

// Removes the gradients of parameters that no rank has used in any pass, and gives an empty one to a rank that owns no element of a parameter.
void ShardReducer::agree_on_used() {
  const std::vector<int> mine(taken_.begin(), taken_.end());
  at::Tensor used = at::tensor(mine, at::kInt).to(parameters_.front().device());
  shards_->of->group().all_reduce(used, Reduction::max);
  used = used.to(at::kCPU);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& own = shards_->own[i];
    if (!used_before_[i] && used[static_cast<std::int64_t>(i)].item<int>() == 0)
      own.reset();
    else if (!own.defined())
      own = at::empty({0}, parameters_[i].options().requires_grad(false));
  }
}

}  // namespace tessera
