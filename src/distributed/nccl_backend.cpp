#include "src/distributed/connection.h"

#ifdef TESSERA_HAS_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

namespace tessera {

#ifdef TESSERA_HAS_NCCL
BackendPointer make_nccl(const c10::intrusive_ptr<c10d::Store>& store, const LaunchEnvironment& environment,
                         std::chrono::milliseconds timeout) {
  const auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, environment.rank, environment.size, options);
}
#else
BackendPointer make_nccl(const c10::intrusive_ptr<c10d::Store>&, const LaunchEnvironment&, std::chrono::milliseconds) {
  return {};
}
#endif

}  // namespace tessera
