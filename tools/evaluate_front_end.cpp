#include "tools/evaluate_arguments.h"
#include "tools/front_end.h"

namespace tessera::tools {

// In a file of its own, because the training library, which `evaluate` links, defines the trainer's.
std::optional<int> answer_at_once(int argc, char** argv) {
  EvaluateOptions options;
  return parse(argc, argv, options);
}

}  // namespace tessera::tools
