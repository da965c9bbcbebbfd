#include "tools/front_end.h"
#include "tools/trainer_arguments.h"

namespace tessera::tools {

std::optional<int> answer_at_once(int argc, char** argv) {
  TrainerArguments arguments;
  return parse(argc, argv, arguments);
}

}  // namespace tessera::tools
