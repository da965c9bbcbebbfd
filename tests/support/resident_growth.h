#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <malloc.h>
#include <optional>
#include <string>

namespace tessera {

/// Runs `body`. Returns the peak of the process's resident memory during this call minus the resident memory before it, in bytes. Returns
/// nothing if Linux does not report these numbers or cannot reset the peak.
inline std::optional<std::int64_t> resident_growth(const std::function<void()>& body) {
  const auto bytes_of = [](const std::string& name) -> std::int64_t {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1)) * 1024;
    return -1;
  };
  ::malloc_trim(0);                                             // memory that is already free would hide new allocations
  std::ofstream("/proc/self/clear_refs") << "5" << std::flush;  // resets the peak
  const std::int64_t before = bytes_of("VmRSS"), peak = bytes_of("VmHWM");
  body();
  const std::int64_t after = bytes_of("VmHWM");
  const bool told = before >= 0 && peak >= before && peak < before + (std::int64_t{1} << 22);
  return told ? std::optional(after - before) : std::nullopt;
}

}  // namespace tessera
