#pragma once

#include <string>

namespace tessera {

/// The address of this machine from which packets to `host` leave, as numbers: the one under which that host, and others on the
/// same network, reach it. Empty when the host's name is unknown or no route leads there.
std::string address_towards(const std::string& host);

}  // namespace tessera
