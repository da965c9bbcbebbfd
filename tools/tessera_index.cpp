#include <string>
#include <vector>

#include "tools/command_line.h"
#include "tools/index/command.h"
#include <tessera/base/error.h>

int main(int argc, char** argv) {
  CLI::App program(
      "Builds and searches an inverted index of sparse encodings, and converts files of sparse encodings.\n"
      "  tessera-embed --checkpoint runs/stair --images *.jpg --raw --sparse pictures.safetensors --vocabulary "
      "vocab.txt\n"
      "  tessera-index build --vocabulary vocab.txt pictures.index pictures.safetensors\n"
      "  tessera-index search pictures.index --tokens \"red circle\" --must red --k 5\n"
      "  tessera-index add pictures.index more.jsonl && tessera-index remove pictures.index --ids 17,18",
      "tessera-index");
  program.require_subcommand(1);
  const std::vector<tessera::tools::Command> commands = {
      tessera::tools::build_command(program),   tessera::tools::add_command(program),
      tessera::tools::remove_command(program),  tessera::tools::compact_command(program),
      tessera::tools::search_command(program),  tessera::tools::info_command(program),
      tessera::tools::convert_command(program),
  };
  if (const auto code = tessera::tools::parse_arguments(program, argc, argv)) return *code;
  for (const tessera::tools::Command& command : commands)
    if (command.app->parsed()) return tessera::run_program("tessera-index " + command.app->get_name(), command.run);
  return 2;
}
