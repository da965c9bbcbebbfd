#pragma once

#include <string>

namespace tessera {

/// This machine's name, for messages and file names; "unknown" when the system tells none.
std::string host_name();

}  // namespace tessera
