#pragma once

#include <string>
#include <string_view>

#include <tessera/base/error.h>

namespace tessera::log {

enum class Level { info, warning, error };

/// Writes one line to stderr (through spdlog), with time and level. Thread-safe.
void write(Level level, std::string_view text);

/// Drops lines below this level. The default is info, unless the environment variable TESSERA_LOG is warning or error.
void set_level(Level level);

/// Also appends every line to this file from now on; an empty path ends this.
void set_file(const std::string& path);

template <class... Parts>
void info(const Parts&... parts) { write(Level::info, concat(parts...)); }
template <class... Parts>
void warning(const Parts&... parts) { write(Level::warning, concat(parts...)); }
template <class... Parts>
void error(const Parts&... parts) { write(Level::error, concat(parts...)); }

}  // namespace tessera::log
