#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tessera::tools {

/// What the program `trainer`, or another one on trainer_main, is told on its command line.
struct TrainerArguments {
  std::string program;  // its own name: messages begin with it
  std::string config;
  std::vector<std::string> overrides;
  std::string resume = "none";
  std::vector<std::string> allowed_changes;  // keys
  int processes = 1;
  bool print_config = false;
  bool dry_run = false;
  std::string dry_run_page;  // file for the samples that a dry run looks at; empty: none
  bool write_features = false;
  std::string replay_step;
  std::string from_open_clip;  // params.txt of open_clip_train
  std::string document;  // file for docs/configuration.md
};

/// Reads the command line; the result as that of parse_arguments (command_line.h).
std::optional<int> parse(int argc, char** argv, TrainerArguments& arguments);

}  // namespace tessera::tools
