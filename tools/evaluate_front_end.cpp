#include "tools/evaluate_arguments.h"
#include "tools/front_end.h"

namespace tessera::tools {

// The program `evaluate` links the training library, which already has the trainer's answer_at_once(). So this function has its own file,
// which only the front end of `evaluate` compiles.
std::optional<int> answer_at_once(int argc, char** argv) {
  EvaluateOptions options;
  return parse(argc, argv, options);
}

}  // namespace tessera::tools
