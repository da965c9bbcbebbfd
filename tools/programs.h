#pragma once

/// The programs whose code is in libraries, so that a unity build compiles it together with other code: tessera_programs, if not said otherwise.
namespace tessera::tools {

int convert_main(int argc, char** argv);
int data_main(int argc, char** argv);
int embed_main(int argc, char** argv);
int evaluate_main(int argc, char** argv);
int index_main(int argc, char** argv);
int serve_main(int argc, char** argv);  // in the library tessera_serving

}  // namespace tessera::tools
