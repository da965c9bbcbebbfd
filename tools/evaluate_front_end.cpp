#include "tools/evaluate_arguments.h"
#include "tools/front_end.h"

namespace tessera::tools {

std::optional<int> answer_at_once(int argc, char** argv) {
  EvaluateOptions options;
  return parse(argc, argv, options);
}

}  // namespace tessera::tools
