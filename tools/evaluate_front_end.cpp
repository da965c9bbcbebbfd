#include "tools/evaluate_arguments.h"
#include "tools/front_end.h"

namespace tessera::tools {

// In a file of its own: the library of training, which the program links, has the trainer's.
std::optional<int> answer_at_once(int argc, char** argv) {
  EvaluateOptions options;
  return parse(argc, argv, options);
}

}  // namespace tessera::tools
