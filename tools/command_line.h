#pragma once

#include <cmath>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

namespace tessera::tools {

/// Check of an option that takes a number above 0. (CLI11's own message spells out the largest double, 309 digits.)
inline CLI::Validator positive_number() {
  return CLI::Validator(
      [](std::string& text) {
        double value = 0;
        const bool right = CLI::detail::lexical_cast(text, value) && value > 0 && std::isfinite(value);
        return right ? "" : "expected a number above 0, got " + text;
      },
      "POSITIVE");
}

/// Parses a program's arguments. Returns the exit code where there is nothing to run: 0 after --help, 2 after a
/// mistake; either has been answered on the terminal by then.
inline std::optional<int> parse_arguments(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return std::nullopt;
}

}  // namespace tessera::tools
