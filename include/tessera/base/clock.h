#pragma once

#include <string>

namespace tessera {

/// Returns the current UTC time in strftime's format: "2026-03-14 15:09:26 UTC".
std::string utc_now(const char* format = "%Y-%m-%d %H:%M:%S UTC");

}  // namespace tessera
