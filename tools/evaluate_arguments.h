#pragma once

#include <optional>

#include <tessera/evaluation/evaluate.h>

namespace tessera::tools {

/// Reads the command line of the program `evaluate`; the result as that of the trainer's parse.
std::optional<int> parse(int argc, char** argv, EvaluateOptions& options);

}  // namespace tessera::tools
