#pragma once

/// The programs whose code is in the library tessera_programs, where a unity build compiles it together.
namespace tessera::tools {

int convert_main(int argc, char** argv);
int data_main(int argc, char** argv);
int embed_main(int argc, char** argv);
int evaluate_main(int argc, char** argv);
int index_main(int argc, char** argv);

}  // namespace tessera::tools
