#pragma once

#include <string>

namespace tessera {

/// The time of day: "2026-03-14 15:09:26 UTC".
std::string utc_now();

}  // namespace tessera
