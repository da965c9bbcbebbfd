#pragma once

#include <string>

namespace tessera::report {

/// What the numbers of an evaluation task say, in a sentence or two that ends with a full stop; empty for an unknown task.
std::string score_rule(const std::string& task);

}  // namespace tessera::report
