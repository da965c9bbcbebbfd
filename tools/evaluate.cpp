#include "tools/command_line.h"
#include "tools/evaluate_arguments.h"
#include <tessera/base/error.h>
#include <tessera/training/run/run_loss.h>

int main(int argc, char** argv) {
  tessera::EvaluateOptions options;
  options.command = tessera::tools::shell_line(argc, argv);
  if (const auto code = tessera::tools::parse(argc, argv, options)) return *code;
  options.run_loss = tessera::checkpoint_loss;
  return tessera::run_program("evaluate", [&] { return tessera::evaluate(options); });
}
