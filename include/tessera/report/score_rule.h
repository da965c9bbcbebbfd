#pragma once

#include <string>

#include <tessera/config/node.h>

namespace tessera::report {

/// What the numbers of an evaluation task say, in a sentence or two that ends with a full stop; empty for an unknown task.
/// `settings`: the task's; without them, what holds for all.
std::string score_rule(const std::string& task, const config::Node& settings = {});

}  // namespace tessera::report
