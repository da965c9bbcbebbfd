#pragma once

#include <functional>

#include <CLI/CLI.hpp>

/// The subcommands of tessera-data: each adds itself with its options, and returns what runs when it is chosen.
namespace tessera::tools {

struct Command {
  CLI::App* app;
  std::function<int()> run;
};

Command tokenize_command(CLI::App& program);
Command train_sentencepiece_command(CLI::App& program);
Command shapes_command(CLI::App& program);
Command inspect_command(CLI::App& program);
Command pack_command(CLI::App& program);
Command read_command(CLI::App& program);

}  // namespace tessera::tools
