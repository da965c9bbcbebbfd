#include "src/distributed/route.h"

#include <array>
#include <memory>

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

namespace tessera {
namespace {

std::string address_towards(const addrinfo& target) {
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
    if (std::string own = address_towards(*target); !own.empty()) return own;
  return {};
}

}  // namespace tessera
