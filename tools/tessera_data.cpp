#include <vector>

#include <CLI/CLI.hpp>

#include "tools/data/command.h"
#include <tessera/base/error.h>

int main(int argc, char** argv) {
  CLI::App program("Prepares and inspects data: the built-in data set, vocabularies, token ids.", "tessera-data");
  program.require_subcommand(1);
  const std::vector<tessera::tools::Command> commands = {
      tessera::tools::inspect_command(program),
      tessera::tools::shapes_command(program),
      tessera::tools::tokenize_command(program),
      tessera::tools::train_sentencepiece_command(program),
  };
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return program.exit(error) == 0 ? 0 : 2;
  }
  for (const tessera::tools::Command& command : commands)
    if (command.app->parsed()) return tessera::run_program("tessera-data " + command.app->get_name(), command.run);
  return 2;
}
