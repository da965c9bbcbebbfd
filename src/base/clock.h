#pragma once

#include <chrono>
#include <string>

namespace tessera {

/// Returns the current UTC time, written in a format of strftime. With the default: "2026-03-14 15:09:26 UTC".
std::string utc_now(const char* format = "%Y-%m-%d %H:%M:%S UTC");

/// Returns the seconds since some fixed moment, from a monotonic clock.
double steady_seconds();

double seconds_since(std::chrono::steady_clock::time_point start);

}  // namespace tessera
