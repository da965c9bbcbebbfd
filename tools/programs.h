#pragma once

/// The programs whose code is in a library, tessera_programs if nothing else is said, so that a unity build compiles it with other code.
namespace tessera::tools {

int convert_main(int argc, char** argv);
int data_main(int argc, char** argv);
int embed_main(int argc, char** argv);
int evaluate_main(int argc, char** argv);
int index_main(int argc, char** argv);
int serve_main(int argc, char** argv);  // in the library tessera_serving

}  // namespace tessera::tools
