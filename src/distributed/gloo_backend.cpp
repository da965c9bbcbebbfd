// The only file that includes Gloo's headers, which LibTorch's wheel lacks. A build without these headers has no backend for CPU tensors.
#include <array>
#include <cstdlib>
#include <memory>

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/distributed/connection.h"
#include <tessera/base/text.h>

#ifdef TESSERA_HAS_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#endif

namespace tessera {
namespace {

std::string address_of_route(const addrinfo& target) {
  const int handle = ::socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (handle < 0) return {};
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  // Connecting a datagram socket sends nothing; it only chooses the route.
  const bool known = ::connect(handle, target.ai_addr, target.ai_addrlen) == 0 &&
                     ::getsockname(handle, reinterpret_cast<sockaddr*>(&own), &size) == 0;
  ::close(handle);
  std::array<char, NI_MAXHOST> text{};
  const bool written = known && ::getnameinfo(reinterpret_cast<const sockaddr*>(&own), size, text.data(), text.size(), nullptr,
                                              0, NI_NUMERICHOST) == 0;
  return written ? text.data() : "";
}

}  // namespace

std::string address_towards(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), "9", &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> targets(found, ::freeaddrinfo);
  for (const addrinfo* target = targets.get(); target != nullptr; target = target->ai_next)
    if (std::string own = address_of_route(*target); !own.empty()) return own;
  return {};
}

#ifdef TESSERA_HAS_GLOO
BackendPointer make_gloo(const c10::intrusive_ptr<c10d::Store>& store, const LaunchEnvironment& environment,
                         std::chrono::milliseconds timeout) {
  const auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  // Two ranks connect when they first exchange something. Otherwise, every rank would ask the store for every other rank's address at the
  // start, and open a connection to it.
  constexpr bool kLazy = true;
  if (const char* names = std::getenv("GLOO_SOCKET_IFNAME"); names != nullptr && *names != '\0') {
    for (const std::string& name : split(names, ','))
      options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(name, kLazy));
  } else {
    // By default Gloo uses the address to which the machine's name resolves. On many machines this is the loopback
    // address.
    const std::string own = address_towards(environment.address);
    options->devices.push_back(own.empty() ? c10d::ProcessGroupGloo::createDefaultDevice(kLazy)
                                           : c10d::ProcessGroupGloo::createDeviceForHostname(own, kLazy));
  }
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, environment.rank, environment.size, options);
}
#else
BackendPointer make_gloo(const c10::intrusive_ptr<c10d::Store>&, const LaunchEnvironment&, std::chrono::milliseconds) {
  return {};
}
#endif

}  // namespace tessera
