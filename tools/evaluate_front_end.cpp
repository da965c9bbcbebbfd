#include "tools/evaluate_arguments.h"
#include "tools/front_end.h"

namespace tessera::tools {

// This function has its own file, because `evaluate` links against the training library, which already defines a function of the same name
// for the trainer.
std::optional<int> answer_at_once(int argc, char** argv) {
  EvaluateOptions options;
  return parse(argc, argv, options);
}

}  // namespace tessera::tools
