#pragma once

#include <optional>

#include <CLI/CLI.hpp>

namespace tessera::tools {

/// Parses a program's arguments. Returns the exit code where there is nothing to run: 0 after --help, 2 after a mistake; either has
/// been answered on the terminal by then.
inline std::optional<int> parse_arguments(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return std::nullopt;
}

}  // namespace tessera::tools
