#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "src/distributed/connection.h"
#include "src/distributed/fake_process_group.h"

namespace tessera {
namespace {

using WorkPointer = c10::intrusive_ptr<c10d::Work>;

class DoneWork : public c10d::Work {
 public:
  bool wait(std::chrono::milliseconds) override { return true; }
};

// A backend whose operations complete at once. Where an operation should return other ranks' data, it returns this
// rank's own data if the shapes make that easy, and otherwise zeros or unchanged memory.
class ImaginedBackend : public c10d::Backend {
 public:
  using Backend::Backend;
  const std::string getBackendName() const override { return "fake"; }

  WorkPointer broadcast(std::vector<at::Tensor>&, const c10d::BroadcastOptions&) override { return done(); }
  WorkPointer allreduce(std::vector<at::Tensor>&, const c10d::AllreduceOptions&) override { return done(); }
  WorkPointer _allgather_base(at::Tensor& all, at::Tensor& own, const c10d::AllgatherOptions&) override {
    for (at::Tensor& part : all.chunk(getSize())) part.copy_(own);
    return done();
  }
  WorkPointer _reduce_scatter_base(at::Tensor& own, at::Tensor& all, const c10d::ReduceScatterOptions&) override {
    own.copy_(all.chunk(getSize())[static_cast<std::size_t>(getRank())]);
    return done();
  }
  WorkPointer alltoall_base(at::Tensor& received, at::Tensor& sent, std::vector<std::int64_t>&,
                            std::vector<std::int64_t>&, const c10d::AllToAllOptions&) override {
    received.copy_(sent);
    return done();
  }
  WorkPointer send(std::vector<at::Tensor>&, int, int) override { return done(); }
  WorkPointer recv(std::vector<at::Tensor>& tensors, int, int) override {
    for (at::Tensor& tensor : tensors) tensor.zero_();
    return done();
  }
  WorkPointer barrier(const c10d::BarrierOptions&) override { return done(); }

 private:
  static WorkPointer done() { return c10::make_intrusive<DoneWork>(); }
};

}  // namespace

ProcessGroup ProcessGroup::Connection::as_group(std::shared_ptr<const Connection> connection) {
  ProcessGroup out;
  out.connection_ = std::move(connection);
  return out;
}

ProcessGroup fake_process_group(int rank, int size) {
  if (size == 1) return {};
  const auto connection = std::make_shared<ProcessGroup::Connection>();
  connection->environment.rank = rank;
  connection->environment.size = size;
  connection->backend = "fake";
  connection->group = c10::make_intrusive<c10d::ProcessGroup>(rank, size);
  const auto backend = c10::make_intrusive<ImaginedBackend>(rank, size);
  for (const c10::DeviceType device : {c10::DeviceType::CPU, c10::DeviceType::CUDA})
    connection->group->setBackend(device, c10d::ProcessGroup::BackendType::CUSTOM, BackendPointer(backend));
  return ProcessGroup::Connection::as_group(connection);
}

}  // namespace tessera
