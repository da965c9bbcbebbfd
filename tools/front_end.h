#pragma once

#include <optional>

namespace tessera::tools {

/// Reads the arguments before LibTorch is loaded. Returns the exit code after --help or a mistake in the arguments, and nothing
/// if the program has to run. Each program with a front end (front_end.cpp) defines this function.
std::optional<int> answer_at_once(int argc, char** argv);

}  // namespace tessera::tools
