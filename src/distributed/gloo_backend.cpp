// The only file that includes Gloo's headers, which LibTorch's wheel lacks. A build without these headers has no backend for CPU tensors.
#include <cstdlib>

#include "src/distributed/connection.h"
#include "src/distributed/route.h"
#include <tessera/base/text.h>

#ifdef TESSERA_HAS_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#endif

namespace tessera {

#ifdef TESSERA_HAS_GLOO
BackendPointer make_gloo(const c10::intrusive_ptr<c10d::Store>& store, const LaunchEnvironment& environment,
                         std::chrono::milliseconds timeout) {
  const auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  if (const char* names = std::getenv("GLOO_SOCKET_IFNAME"); names != nullptr && *names != '\0') {
    for (const std::string& name : split(names, ','))
      options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(name));
  } else {
    // By default Gloo uses the address to which the machine's name resolves. On many machines this is the loopback
    // address.
    const std::string own = address_towards(environment.address);
    options->devices.push_back(own.empty() ? c10d::ProcessGroupGloo::createDefaultDevice()
                                           : c10d::ProcessGroupGloo::createDeviceForHostname(own));
  }
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, environment.rank, environment.size, options);
}
#else
BackendPointer make_gloo(const c10::intrusive_ptr<c10d::Store>&, const LaunchEnvironment&, std::chrono::milliseconds) {
  return {};
}
#endif

}  // namespace tessera
