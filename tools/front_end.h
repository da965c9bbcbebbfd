#pragma once

#include <optional>

namespace tessera::tools {

/// What a program answers before it loads LibTorch: the exit code after --help or a mistake in the arguments; none if it has to
/// run. Each program with a front end (front_end.cpp) defines its own.
std::optional<int> answer_at_once(int argc, char** argv);

}  // namespace tessera::tools
