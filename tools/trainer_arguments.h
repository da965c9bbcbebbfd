#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tessera::tools {

/// The command-line arguments of `trainer`, or of another program built on trainer_main.
struct TrainerArguments {
  std::string program;  // the program's name, which messages begin with
  std::string config;
  std::vector<std::string> overrides;
  std::string resume = "none";
  std::vector<std::string> allowed_changes;  // keys given to --allow-changes
  int processes = 1;
  bool print_config = false;
  bool dry_run = false;
  std::string dry_run_page;  // file for the page with the samples of the dry run; empty: no page
  bool write_features = false;
  std::string replay_step;
  std::string from_open_clip;  // path of a params.txt of open_clip_train
  std::string document;  // file for the text of docs/configuration.md
};

/// Reads the command line. Returns what parse_arguments() in command_line.h returns.
std::optional<int> parse(int argc, char** argv, TrainerArguments& arguments);

}  // namespace tessera::tools
