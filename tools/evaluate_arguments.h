#pragma once

#include <optional>

#include <tessera/evaluation/evaluate.h>

namespace tessera::tools {

/// Reads the command line of the program `evaluate`. Returns what parse_arguments() in command_line.h returns.
std::optional<int> parse(int argc, char** argv, EvaluateOptions& options);

}  // namespace tessera::tools
