// The main() of each program of tools/programs.h. TESSERA_MAIN is the name of the program's function.
#include "tools/programs.h"

int main(int argc, char** argv) {
  return tessera::tools::TESSERA_MAIN(argc, argv);
}
