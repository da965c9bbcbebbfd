#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "tools/command_line.h"
#include <tessera/config/node.h>

/// The subcommands of the program tessera-data.
namespace tessera::tools {

/// Returns the settings of a module from KEY=VALUE arguments.
inline config::Node settings_of(const std::vector<std::string>& assignments) {
  config::Node node = config::Node::map();
  for (const std::string& assignment : assignments) config::apply_override(node, assignment);
  return node;
}

Command concepts_command(CLI::App& program);
Command dedup_command(CLI::App& program);
Command tokenize_command(CLI::App& program);
Command train_sentencepiece_command(CLI::App& program);
Command inspect_command(CLI::App& program);
Command hard_negatives_command(CLI::App& program);
Command pack_command(CLI::App& program);
Command summarize_command(CLI::App& program);
Command read_command(CLI::App& program);

}  // namespace tessera::tools
