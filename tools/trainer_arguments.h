#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tessera::tools {

/// What the program `trainer` is told on its command line.
struct TrainerArguments {
  std::string config;
  std::vector<std::string> overrides;
  std::string resume = "none";
  int processes = 1;
  bool print_config = false;
  bool dry_run = false;
  std::string document;  // file for docs/configuration.md
};

/// Reads the command line. Returns the exit code where there is nothing to run: 0 after --help, 2 after a mistake; either has been
/// answered on the terminal by then.
std::optional<int> parse(int argc, char** argv, TrainerArguments& arguments);

}  // namespace tessera::tools
