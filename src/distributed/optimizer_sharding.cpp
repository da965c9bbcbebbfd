#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "src/distributed/connection.h"
#include "src/distributed/optimizer_sharding.h"

namespace tessera {
namespace {

constexpr std::int64_t kBlock = 1024;  // elements; a piece begins at a multiple of it

at::Tensor values_of(const std::vector<at::Tensor>& tensors, const Piece& piece) {
  return elements_of(tensors[piece.tensor]).slice(0, piece.begin, piece.end);
}

std::int64_t elements_in(const std::vector<Piece>& pieces) {
  std::int64_t sum = 0;
  for (const Piece& piece : pieces) sum += piece.end - piece.begin;
  return sum;
}

}  // namespace

at::Tensor elements_of(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.is_non_overlapping_and_dense(), "optimizer: a sharded parameter must be dense");
  return tensor.detach().as_strided({tensor.numel()}, {1});
}

FlatShards::FlatShards(std::vector<at::Tensor> tensors, const std::vector<bool>& whole, ProcessGroup group, double bucket_mb)
    : tensors_(std::move(tensors)),
      group_(std::move(group)),
      bucket_mb_(bucket_mb),
      pieces_(static_cast<std::size_t>(group_.size())),
      own_(tensors_.size()) {
  std::map<std::tuple<at::ScalarType, c10::DeviceType, int>, std::vector<std::size_t>> filling;
  const auto finish = [&](std::vector<std::size_t>& bucket) {
    if (bucket.empty()) return;
    const std::vector<std::vector<Piece>> of_rank = divided(bucket);
    add(of_rank);
    add_buckets(of_rank);
    bucket.clear();
  };
  std::vector<std::size_t> whole_ones;
  std::vector<at::Tensor> undivided;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (whole[i]) {
      whole_ones.push_back(i);
      undivided.push_back(tensors_[i]);
      continue;
    }
    const at::Tensor& tensor = tensors_[i];
    auto& bucket = filling[{tensor.scalar_type(), tensor.device().type(), tensor.device().index()}];
    std::size_t bytes = tensor.nbytes();
    for (const std::size_t other : bucket) bytes += tensors_[other].nbytes();
    if (static_cast<double>(bytes) > bucket_mb_ * 1024 * 1024) finish(bucket);
    bucket.push_back(i);
  }
  for (auto& [kind, bucket] : filling) finish(bucket);
  const std::vector<int> owners = balanced_owners(undivided, group_.size());
  std::vector<std::vector<Piece>> of_rank(pieces_.size());
  for (std::size_t i = 0; i < whole_ones.size(); ++i) {
    buckets_.push_back({.tensors = {whole_ones[i]}, .owner = owners[i]});
    of_rank[static_cast<std::size_t>(owners[i])].push_back({whole_ones[i], 0, undivided[i].numel()});
  }
  add(of_rank);
}

void FlatShards::add(const std::vector<std::vector<Piece>>& of_rank) {
  for (std::size_t rank = 0; rank < of_rank.size(); ++rank)
    for (const Piece& piece : of_rank[rank]) {
      pieces_[rank].push_back(piece);
      if (static_cast<int>(rank) == group_.rank()) own_[piece.tensor] = piece;
    }
}

std::vector<std::vector<Piece>> FlatShards::divided(const std::vector<std::size_t>& tensors) const {
  std::int64_t total = 0;
  for (const std::size_t i : tensors) total += tensors_[i].numel();
  std::vector<std::vector<Piece>> of_rank(pieces_.size());
  std::int64_t before = 0;  // elements of the tensors before this one
  for (const std::size_t i : tensors) {
    const std::int64_t count = tensors_[i].numel();
    for (std::int64_t begin = 0; begin < count; begin += kBlock) {
      std::vector<Piece>& pieces = of_rank[static_cast<std::size_t>((before + begin) * group_.size() / total)];
      const std::int64_t end = std::min(begin + kBlock, count);
      if (!pieces.empty() && pieces.back().tensor == i)
        pieces.back().end = end;
      else
        pieces.push_back({i, begin, end});
    }
    before += count;
  }
  return of_rank;
}

// Cuts the ranks' pieces into buckets.
void FlatShards::add_buckets(const std::vector<std::vector<Piece>>& of_rank) {
  std::int64_t longest = 0, element = 1;
  for (const std::vector<Piece>& pieces : of_rank) longest = std::max(longest, elements_in(pieces));
  for (const std::vector<Piece>& pieces : of_rank)
    if (!pieces.empty()) element = static_cast<std::int64_t>(tensors_[pieces[0].tensor].element_size());
  const auto of_bucket = static_cast<std::int64_t>(bucket_mb_ * 1024 * 1024 / static_cast<double>(element * group_.size()));
  const std::int64_t slice = std::max<std::int64_t>(kBlock, of_bucket / kBlock * kBlock);
  for (std::int64_t first = 0; first < longest; first += slice) {
    Bucket bucket;
    std::set<std::size_t> tensors;
    for (const std::vector<Piece>& pieces : of_rank) {
      std::vector<Piece>& cut = bucket.of_rank.emplace_back();
      std::int64_t at = 0;  // the elements of the rank before this piece
      for (const Piece& piece : pieces) {
        const std::int64_t begin = std::max(first - at, std::int64_t{0}), end = std::min(first + slice - at, piece.end - piece.begin);
        if (begin < end) {
          cut.push_back({piece.tensor, piece.begin + begin, piece.begin + end});
          tensors.insert(piece.tensor);
        }
        at += piece.end - piece.begin;
      }
      bucket.slice = std::max(bucket.slice, elements_in(cut));
    }
    bucket.tensors.assign(tensors.begin(), tensors.end());
    buckets_.push_back(std::move(bucket));
  }
}

void FlatShards::distribute() const {
  const at::NoGradGuard no_grad;
  std::map<int, std::vector<at::Tensor>> of_owner;
  for (const Bucket& bucket : buckets_) {
    if (bucket.owner) {
      of_owner[*bucket.owner].push_back(tensors_[bucket.tensors[0]].detach());
      continue;
    }
    const at::Tensor sent = at::empty({bucket.slice}, tensors_[bucket.tensors[0]].options());
    const auto copy = [&](int rank, const at::Tensor& slice, bool out) {
      std::vector<at::Tensor> mine, others;
      std::int64_t at = 0;
      for (const Piece& piece : bucket.of_rank[static_cast<std::size_t>(rank)]) {
        mine.push_back(values_of(tensors_, piece));
        others.push_back(slice.slice(0, at, at + piece.end - piece.begin));
        at += piece.end - piece.begin;
      }
      if (mine.empty()) return;
      if (out)
        at::_foreach_copy_(others, mine);
      else
        at::_foreach_copy_(mine, others);
    };
    copy(group_.rank(), sent, true);
    const at::Tensor all = group_.all_gather(sent).view({group_.size(), bucket.slice});
    for (int rank = 0; rank < group_.size(); ++rank)
      if (rank != group_.rank()) copy(rank, all[rank], false);
  }
  for (auto& [rank, tensors] : of_owner)
    c10d::broadcast_coalesced(group_.connection()->group, tensors, static_cast<std::size_t>(bucket_mb_ * 1024 * 1024), rank);
}

std::vector<at::Tensor> FlatShards::gather(const std::vector<at::Tensor>& own) const {
  // Sends through host memory. The values are only going to be saved, so they should not take memory on rank 0's GPU.
  const auto gloo = group_.connection()->group->getBackend(at::kCPU);
  const auto some = std::find_if(own.begin(), own.end(), [](const at::Tensor& each) { return each.defined(); });
  if (some == own.end()) return group_.first() ? own : std::vector<at::Tensor>();
  const at::TensorOptions options(some->scalar_type());
  const auto sent_by = [&](int rank) {
    std::vector<Piece> out = pieces(rank);
    std::erase_if(out, [&](const Piece& piece) { return !own[piece.tensor].defined(); });
    return out;
  };
  if (!group_.first()) {
    std::vector<at::Tensor> values;
    for (const Piece& piece : sent_by(group_.rank())) values.push_back(elements_of(own[piece.tensor]).to(at::kCPU));
    if (values.empty()) return {};
    std::vector<at::Tensor> sent{at::cat(values)};
    gloo->send(sent, 0, 0)->wait();
    return {};
  }
  std::vector<at::Tensor> out(own.size());
  for (std::size_t i = 0; i < own.size(); ++i)
    if (own[i].defined()) out[i] = at::empty_strided(tensors_[i].sizes(), tensors_[i].strides(), options);
  for (int rank = 0; rank < group_.size(); ++rank) {
    const std::vector<Piece> list = sent_by(rank);
    if (list.empty()) continue;
    std::vector<at::Tensor> received;
    if (rank != 0) {
      received = {at::empty({elements_in(list)}, options)};
      gloo->recv(received, rank, 0)->wait();
    }
    std::int64_t at = 0;
    for (const Piece& piece : list) {
      const std::int64_t count = piece.end - piece.begin;
      values_of(out, piece).copy_(rank == 0 ? elements_of(own[piece.tensor]) : received[0].slice(0, at, at + count));
      at += count;
    }
  }
  return out;
}

std::vector<int> balanced_owners(const std::vector<at::Tensor>& tensors, int ranks) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return tensors[a].numel() > tensors[b].numel(); });
  std::vector<std::int64_t> elements(static_cast<std::size_t>(ranks));
  std::vector<int> owners(tensors.size());
  for (const std::size_t index : order) {
    const auto least = std::min_element(elements.begin(), elements.end());
    *least += tensors[index].numel();
    owners[index] = static_cast<int>(least - elements.begin());
  }
  return owners;
}

}  // namespace tessera
