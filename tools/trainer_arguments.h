#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tessera::tools {

/// The command-line arguments of `trainer`, or of another program built on trainer_main.
struct TrainerArguments {
  std::string program;  // the program's own name, with which messages begin
  std::string config;
  std::vector<std::string> overrides;
  std::string resume = "none";
  std::vector<std::string> allowed_changes;  // keys
  int processes = 1;
  bool print_config = false;
  bool dry_run = false;
  std::string dry_run_page;  // page to write with the samples of the dry run; empty: none
  bool write_features = false;
  std::string replay_step;
  std::string from_open_clip;  // params.txt of open_clip_train
  std::string document;  // file to which to write the text of docs/configuration.md
};

/// Reads the command line. Returns the same as parse_arguments (command_line.h).
std::optional<int> parse(int argc, char** argv, TrainerArguments& arguments);

}  // namespace tessera::tools
