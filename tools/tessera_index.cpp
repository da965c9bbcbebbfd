#include <string>
#include <vector>

#include "tools/command_line.h"
#include "tools/index/command.h"
#include "tools/programs.h"
#include <tessera/base/error.h>

namespace tessera::tools {

int index_main(int argc, char** argv) {
  CLI::App program(
      "Builds and searches an inverted index of sparse encodings, and converts files of sparse encodings.\n"
      "  tessera-embed --checkpoint runs/stair --images *.jpg --raw --sparse pictures.safetensors --vocabulary "
      "vocab.txt\n"
      "  tessera-index build --vocabulary vocab.txt pictures.index pictures.safetensors\n"
      "  tessera-index search pictures.index --tokens \"red circle\" --must red --k 5\n"
      "  tessera-index add pictures.index more.jsonl && tessera-index remove pictures.index --ids 17,18",
      "tessera-index");
  program.require_subcommand(1);
  const std::vector<Command> commands = {
      build_command(program),   add_command(program),
      remove_command(program),  compact_command(program),
      search_command(program),  info_command(program),
      convert_command(program),
  };
  if (const auto code = parse_arguments(program, argc, argv)) return *code;
  for (const Command& command : commands)
    if (command.app->parsed()) return run_program("tessera-index " + command.app->get_name(), command.run);
  return 2;
}

}  // namespace tessera::tools
