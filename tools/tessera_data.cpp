#include <vector>

#include "tools/command_line.h"
#include "tools/data/command.h"
#include "tools/programs.h"
#include <tessera/base/error.h>

namespace tessera::tools {

int data_main(int argc, char** argv) {
  CLI::App program("Prepares and inspects data: shards, hard negatives, vocabularies and token ids.",
                   "tessera-data");
  program.require_subcommand(1);
  const std::vector<Command> commands = {
      concepts_command(program),
      dedup_command(program),
      hard_negatives_command(program),
      inspect_command(program),
      pack_command(program),
      read_command(program),
      summarize_command(program),
      tokenize_command(program),
      train_sentencepiece_command(program),
  };
  if (const auto code = parse_arguments(program, argc, argv)) return *code;
  for (const Command& command : commands)
    if (command.app->parsed()) return run_program("tessera-data " + command.app->get_name(), command.run);
  return 2;
}

}  // namespace tessera::tools
