#pragma once

#include <string>

#include <tessera/config/node.h>

namespace tessera::report {

/// Returns an explanation of an evaluation task's numbers that ends with a full stop; empty for an unknown task. `settings` are
/// the task's; without them, the text holds for all settings.
std::string score_rule(const std::string& task, const config::Node& settings = {});

}  // namespace tessera::report
