// The only file that sees Gloo's headers, which LibTorch's wheel lacks; without them CPU tensors have no backend.
#include "src/distributed/connection.h"

#ifdef TESSERA_HAS_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#endif

namespace tessera {

#ifdef TESSERA_HAS_GLOO
BackendPointer make_gloo(const c10::intrusive_ptr<c10d::Store>& store, const LaunchEnvironment& environment,
                         std::chrono::milliseconds timeout) {
  const auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  // Ranks that meet at the loopback address all run here; a machine's own name may resolve to one it can't reach.
  const bool local = environment.address == "127.0.0.1" || environment.address == "localhost";
  options->devices.push_back(local ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
                                   : c10d::ProcessGroupGloo::createDefaultDevice());
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, environment.rank, environment.size, options);
}
#else
BackendPointer make_gloo(const c10::intrusive_ptr<c10d::Store>&, const LaunchEnvironment&, std::chrono::milliseconds) {
  return {};
}
#endif

}  // namespace tessera
