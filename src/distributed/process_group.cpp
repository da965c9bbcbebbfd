#include <atomic>
#include <exception>

#include <fcntl.h>

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "src/base/clock.h"
#include "src/distributed/connection.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>

namespace tessera {
namespace {

constexpr std::chrono::seconds kFarewell{30};  // how long a rank waits for the others before it leaves

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

c10::intrusive_ptr<c10d::TCPStore> meet(const LaunchEnvironment& environment, std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(environment.port);
  options.isServer = environment.rank == 0;
  if (options.isServer && environment.socket >= 0) {
    ::fcntl(environment.socket, F_SETFD, FD_CLOEXEC);  // a command that outlives this process must not keep the port open
    options.masterListenFd = environment.socket;
  }
  options.numWorkers = static_cast<std::size_t>(environment.size);
  options.timeout = timeout;
  options.waitWorkers = true;
  try {
    return c10::make_intrusive<c10d::TCPStore>(environment.address, options);
  } catch (const std::exception& error) {
    std::string text = error.what();
    text = text.substr(0, text.find('\n'));
    user_error("rank ", environment.rank, " of ", environment.size, ": the ranks did not meet at ", environment.address,
               ":", environment.port, " within ", timeout.count() / 1000, " s (", text,
               "): are all of them started, and is that port free and reachable?");
  }
}

c10d::ReduceOp operation(Reduction reduction) {
  switch (reduction) {
    case Reduction::min:
      return c10d::ReduceOp::MIN;
    case Reduction::max:
      return c10d::ReduceOp::MAX;
    case Reduction::sum:
      break;
  }
  return c10d::ReduceOp::SUM;
}

std::atomic<std::int64_t> requests{0};

// Counts the requests that c10d's backends and this folder make. One rank's store answers those of all ranks, so their number must not grow
// with the number of ranks.
class CountedStore : public c10d::PrefixStore {
 public:
  using Bytes = std::vector<std::uint8_t>;
  using PrefixStore::PrefixStore;
  using PrefixStore::set;
  void set(const std::string& key, const Bytes& value) override { ++requests, PrefixStore::set(key, value); }
  Bytes get(const std::string& key) override { return ++requests, PrefixStore::get(key); }
  std::int64_t add(const std::string& key, std::int64_t value) override { return ++requests, PrefixStore::add(key, value); }
  bool check(const std::vector<std::string>& keys) override { return ++requests, PrefixStore::check(keys); }
  void wait(const std::vector<std::string>& keys) override { ++requests, PrefixStore::wait(keys); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    ++requests, PrefixStore::wait(keys, timeout);
  }
  std::vector<Bytes> multiGet(const std::vector<std::string>& keys) override { return ++requests, PrefixStore::multiGet(keys); }
};

// PyTorch 2.15 renames these operations of c10d and deprecates the old names, which 2.11 has. They are templates, so that only the branch
// that is chosen is compiled.
template <class Group>
auto gather_into(Group& group, at::Tensor& output, at::Tensor& input) {
  if constexpr (requires { group.all_gather_single(output, input); }) return group.all_gather_single(output, input);
  else return group._allgather_base(output, input);
}

template <class Group>
auto reduce_scatter_into(Group& group, at::Tensor& output, at::Tensor& input) {
  if constexpr (requires { group.reduce_scatter_single(output, input); }) return group.reduce_scatter_single(output, input);
  else return group._reduce_scatter_base(output, input);
}

template <class Group>
auto exchange_into(Group& group, at::Tensor& output, at::Tensor& input) {
  std::vector<std::int64_t> even;
  if constexpr (requires { group.all_to_all_single(output, input, even, even); }) return group.all_to_all_single(output, input, even, even);
  else return group.alltoall_base(output, input, even, even);
}

// The backends do not support bool, so bool tensors are sent as bytes.
at::Tensor bytes_for_bool(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBool ? tensor.view(at::kByte) : tensor;
}

}  // namespace

struct ProcessGroup::Transfer::Impl {
  std::shared_ptr<const Connection> connection;
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  at::Tensor arrived, receive;  // on the CPU, and its copy on the GPU; undefined if the backend writes to the receiver's memory
};

ProcessGroup::Transfer::Transfer() = default;
ProcessGroup::Transfer::Transfer(Transfer&&) noexcept = default;
ProcessGroup::Transfer& ProcessGroup::Transfer::operator=(Transfer&&) noexcept = default;
ProcessGroup::Transfer::~Transfer() = default;

void ProcessGroup::Transfer::wait() {
  if (!impl_) return;
  for (const auto& work : impl_->works) impl_->connection->finish(*work);
  const at::NoGradGuard no_grad;
  if (impl_->receive.defined()) impl_->receive.copy_(impl_->arrived);
  impl_.reset();
}

ProcessGroup::Connection::~Connection() {
  // While an exception propagates, other ranks may be lost, so do not wait for them.
  if (!group || borrowed || std::uncaught_exceptions() > 0) return;
  try {
    if (device.is_cuda()) at::accelerator::synchronizeDevice(device.index());
    std::vector<at::Tensor> nothing{at::zeros({1})};
    c10d::AllreduceOptions options;
    options.timeout = kFarewell;
    group->allreduce(nothing, options)->wait();
    group->shutdown();
  } catch (const std::exception& error) {
    const std::string text = error.what();
    log::warning("rank ", environment.rank, " leaves without the others: ", text.substr(0, text.find('\n')));
  }
}

void ProcessGroup::Connection::finish(c10d::Work& work) const {
  const double begin = steady_seconds();
  work.wait();
  seconds_waited += steady_seconds() - begin;
}

c10::intrusive_ptr<c10d::Store> store_of_attempt(const c10::intrusive_ptr<c10d::Store>& store, const LaunchEnvironment& environment) {
  return c10::make_intrusive<CountedStore>(concat("attempt_", environment.attempt), store);
}

std::int64_t store_requests() {
  return requests;
}

void claim_gpu(c10d::Store& store, const std::string& identity, const LaunchEnvironment& environment) {
  if (store.add("gpu/" + identity, 1) > 1)
    user_error(
        "rank ", environment.rank, " (local rank ", environment.local_rank,
        ") has the same GPU as another rank: start at most one process per GPU, or set training.device to cpu");
}

ProcessGroup ProcessGroup::connect(const LaunchEnvironment& environment, const DistributedSettings& settings,
                                   const at::Device& device) {
  ProcessGroup out;
  const bool cuda = device.is_cuda();
  const bool nccl = settings.backend == "nccl" || (settings.backend == "auto" && cuda);
  if (nccl && !cuda)
    user_error("distributed.backend is nccl, but training.device is the CPU here: set it to auto or gloo");
  // A single rank needs no connection, unless the user names a backend, for example to measure its cost.
  if (environment.alone() && settings.backend == "auto") return out;

  const auto timeout = milliseconds(settings.timeout);
  LaunchEnvironment place = environment;
  if (place.address.empty()) place.address = "127.0.0.1";
  const auto connection = std::make_shared<Connection>();
  const auto store = meet(place, timeout);
  place.port = store->getPort();  // for a single rank, the store chooses a free port
  connection->environment = place;
  connection->device = device;
  connection->store = store_of_attempt(store, place);
  connection->group = c10::make_intrusive<c10d::ProcessGroup>(connection->store, place.rank, place.size);
  if (cuda) connection->group->setBoundDeviceId(device);
  const auto add = [&](c10::DeviceType kind, c10d::ProcessGroup::BackendType type, const BackendPointer& backend) {
    connection->group->setBackend(kind, type, backend);
  };
  const auto prefixed = [&](const char* name) -> c10::intrusive_ptr<c10d::Store> {
    return c10::make_intrusive<c10d::PrefixStore>(name, connection->store);
  };
  if (nccl) {
    const BackendPointer backend = make_nccl(prefixed("nccl"), place, device, timeout);
    if (!backend) user_error("distributed.backend nccl: Tessera was built without NCCL here: set it to gloo");
    add(c10::DeviceType::CUDA, c10d::ProcessGroup::BackendType::NCCL, backend);
  }
  const BackendPointer gloo = make_gloo(prefixed("gloo"), place, timeout);
  if (!gloo)
    user_error(
        "several ranks need Gloo, but Tessera was built without its headers: install libgloo-dev and build "
        "again (scripts/setup.sh does)");
  add(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, gloo);
  if (cuda && !nccl) add(c10::DeviceType::CUDA, c10d::ProcessGroup::BackendType::GLOO, gloo);
  connection->group->setGroupDesc("ranks");
  connection->backend = nccl ? "nccl" : "gloo";
  out.connection_ = connection;
  return out;
}

ProcessGroup torch_group(const std::string& name) {
  const auto connection = std::make_shared<ProcessGroup::Connection>();
  connection->group = c10d::resolve_process_group(name);
  connection->borrowed = true;
  connection->environment.rank = connection->group->getRank();
  connection->environment.size = connection->group->getSize();
  connection->backend = connection->group->getBackendName();
  return ProcessGroup::Connection::as_group(connection);
}

int ProcessGroup::rank() const {
  return connection_ ? connection_->environment.rank : 0;
}

int ProcessGroup::size() const {
  return connection_ ? connection_->environment.size : 1;
}

int ProcessGroup::local_rank() const {
  return connection_ ? connection_->environment.local_rank : 0;
}

std::string ProcessGroup::backend() const {
  return connection_ ? connection_->backend : "none";
}

void ProcessGroup::all_reduce(at::Tensor& tensor, Reduction reduction, double seconds) const {
  if (!alone()) connection_->start_all_reduce(tensor, reduction, seconds).wait();
}

ProcessGroup::Transfer ProcessGroup::Connection::start_all_reduce(at::Tensor& tensor, Reduction reduction, double seconds) const {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> tensors{tensor};
  c10d::AllreduceOptions options;
  options.reduceOp = operation(reduction);
  if (seconds > 0) options.timeout = milliseconds(seconds);
  return started(group->allreduce(tensors, options));
}

ProcessGroup::Transfer ProcessGroup::Connection::started(c10::intrusive_ptr<c10d::Work> work) const {
  Transfer transfer;
  transfer.impl_ = std::make_unique<Transfer::Impl>();
  transfer.impl_->connection = shared_from_this();
  transfer.impl_->works = {std::move(work)};
  return transfer;
}

ProcessGroup::Transfer ProcessGroup::Connection::start_reduce_scatter(at::Tensor& own, at::Tensor& all) const {
  return started(reduce_scatter_into(*group, own, all));
}

ProcessGroup::Transfer ProcessGroup::Connection::start_reduce(at::Tensor& tensor, int root) const {
  std::vector<at::Tensor> tensors{tensor};
  c10d::ReduceOptions options;
  options.rootRank = root;
  return started(group->reduce(tensors, options));
}

void ProcessGroup::broadcast(at::Tensor& tensor, int root) const {
  if (alone()) return;
  const at::NoGradGuard no_grad;
  // Backends send contiguous memory, but a parameter may be a non-contiguous view.
  at::Tensor dense = bytes_for_bool(tensor.detach().contiguous());
  std::vector<at::Tensor> tensors{dense};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  connection_->finish(*connection_->group->broadcast(tensors, options));
  if (dense.data_ptr() != tensor.data_ptr()) tensor.copy_(dense.view(tensor.scalar_type()));
}

at::Tensor ProcessGroup::all_gather(const at::Tensor& own) const {
  if (alone()) return own;
  const at::NoGradGuard no_grad;
  at::Tensor input = bytes_for_bool(own.detach().contiguous());
  std::vector<std::int64_t> shape = input.sizes().vec();
  shape.at(0) *= size();
  at::Tensor output = at::empty(shape, input.options());
  connection_->finish(*gather_into(*connection_->group, output, input));
  return output.view(own.scalar_type());
}

at::Tensor ProcessGroup::reduce_scatter(const at::Tensor& all) const {
  if (alone()) return all;
  const at::NoGradGuard no_grad;
  at::Tensor input = all.detach().contiguous();
  std::vector<std::int64_t> shape = input.sizes().vec();
  shape.at(0) /= size();
  at::Tensor output = at::empty(shape, input.options());
  connection_->finish(*reduce_scatter_into(*connection_->group, output, input));
  return output;
}

at::Tensor ProcessGroup::all_to_all(const at::Tensor& parts) const {
  if (alone()) return parts;
  const at::NoGradGuard no_grad;
  at::Tensor input = parts.detach().contiguous();
  at::Tensor output = at::empty_like(input);
  connection_->finish(*exchange_into(*connection_->group, output, input));
  return output;
}

std::string ProcessGroup::broadcast_text(const std::string& text, int root) const {
  if (alone()) return text;
  at::Tensor length = at::full({1}, static_cast<std::int64_t>(text.size()), at::kLong);
  broadcast(length, root);
  at::Tensor bytes = at::empty({length.item<std::int64_t>()}, at::kByte);
  if (rank() == root) std::copy(text.begin(), text.end(), bytes.data_ptr<std::uint8_t>());
  if (bytes.numel() > 0) broadcast(bytes, root);
  const auto* begin = bytes.const_data_ptr<std::uint8_t>();
  return std::string(begin, begin + bytes.numel());
}

ProcessGroup::Transfer ProcessGroup::pass_on(const at::Tensor& send, const at::Tensor& receive) const {
  TORCH_CHECK(!alone(), "a process alone has no neighbor to pass on to");
  const at::NoGradGuard no_grad;
  if (size() == 1 && connection_->backend == "gloo") {  // Gloo cannot send from a rank to itself
    receive.copy_(send);
    return {};
  }
  const auto backend = connection_->group->getBackend(send.device().type());
  const int next = (rank() + 1) % size(), previous = (rank() + size() - 1) % size();
  Transfer transfer;
  transfer.impl_ = std::make_unique<Transfer::Impl>();
  transfer.impl_->connection = connection_;
  std::vector<at::Tensor> out{send}, in{receive};
  if (send.is_cuda() && connection_->backend == "gloo") {  // Gloo's send and recv access the memory from the CPU
    out = {send.cpu()};
    in = {at::empty_like(receive, receive.options().device(at::kCPU))};
    transfer.impl_->arrived = in[0];
    transfer.impl_->receive = receive;
  }
  // NCCL sends and receives at the same time only if both operations are in one NCCL group. Gloo does not need a group.
  const bool grouped = backend->supportsCoalescing() && connection_->backend == "nccl" && send.is_cuda();
  if (grouped) backend->startCoalescing();
  const auto sent = backend->send(out, next, 0);
  const auto received = backend->recv(in, previous, 0);
  if (grouped)
    transfer.impl_->works = {backend->endCoalescing()};
  else
    transfer.impl_->works = {sent, received};
  return transfer;
}

}  // namespace tessera
