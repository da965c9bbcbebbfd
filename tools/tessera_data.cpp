#include <vector>

#include "tools/command_line.h"
#include "tools/data/command.h"
#include <tessera/base/error.h>

int main(int argc, char** argv) {
  CLI::App program("Prepares and inspects data: shards, hard negatives, vocabularies and token ids.",
                   "tessera-data");
  program.require_subcommand(1);
  const std::vector<tessera::tools::Command> commands = {
      tessera::tools::concepts_command(program),
      tessera::tools::dedup_command(program),
      tessera::tools::hard_negatives_command(program),
      tessera::tools::inspect_command(program),
      tessera::tools::pack_command(program),
      tessera::tools::read_command(program),
      tessera::tools::summarize_command(program),
      tessera::tools::tokenize_command(program),
      tessera::tools::train_sentencepiece_command(program),
  };
  if (const auto code = tessera::tools::parse_arguments(program, argc, argv)) return *code;
  for (const tessera::tools::Command& command : commands)
    if (command.app->parsed()) return tessera::run_program("tessera-data " + command.app->get_name(), command.run);
  return 2;
}
