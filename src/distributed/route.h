#pragma once

#include <string>

namespace tessera {

/// Returns, in numeric form, the address under which `host` and others on the same network reach this machine. It is
/// this machine's address on the route to `host`. Returns an empty string if the host's name is unknown or there is no
/// route to it.
std::string address_towards(const std::string& host);

}  // namespace tessera
