#pragma once

#include <string>

namespace tessera {

/// Returns this machine's address on the route to `host`, in numeric form: the address under which that host, and
/// others on the same network, reach this machine. Returns an empty string when the host's name is unknown or there is
/// no route to it.
std::string address_towards(const std::string& host);

}  // namespace tessera
