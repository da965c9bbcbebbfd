#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "src/distributed/connection.h"
#include "src/distributed/optimizer_sharding.h"

namespace tessera {

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

void broadcast_from_owners(const std::vector<at::Tensor>& tensors, const std::vector<int>& owners,
                           const ProcessGroup& group, double bucket_mb) {
  if (group.alone()) return;
  const at::NoGradGuard no_grad;
  const auto bytes = static_cast<std::size_t>(bucket_mb * 1024 * 1024);
  for (int rank = 0; rank < group.size(); ++rank) {
    std::vector<at::Tensor> of_rank;
    for (std::size_t i = 0; i < tensors.size(); ++i)
      if (owners[i] == rank) of_rank.push_back(tensors[i].detach());
    if (!of_rank.empty()) c10d::broadcast_coalesced(group.connection()->group, of_rank, bytes, rank);
  }
}

at::Tensor send_to_first(const at::Tensor& tensor, int owner, const ProcessGroup& group) {
  if (owner == 0) return group.first() ? tensor : at::Tensor();
  if (!group.first() && group.rank() != owner) return {};
  // Sends through host memory. The tensors are only going to be saved, so they should not take memory on rank 0's GPU.
  const auto gloo = group.connection()->group->getBackend(at::kCPU);
  if (group.first()) {
    std::vector<at::Tensor> received{at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()))};
    gloo->recv(received, owner, 0)->wait();
    return received[0];
  }
  std::vector<at::Tensor> sent{tensor.detach().to(at::kCPU).contiguous()};
  gloo->send(sent, 0, 0)->wait();
  return {};
}

}  // namespace tessera
