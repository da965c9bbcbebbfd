#pragma once

#include <optional>

#include <tessera/evaluation/evaluate.h>

namespace tessera::tools {

/// Reads the command line of the program `evaluate`. Returns the same as parse_arguments (command_line.h).
std::optional<int> parse(int argc, char** argv, EvaluateOptions& options);

}  // namespace tessera::tools
