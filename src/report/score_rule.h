#pragma once

#include <string>

#include <tessera/config/node.h>

namespace tessera::report {

/// Returns a text that explains the numbers of an evaluation task and ends with a period; empty for an unknown task. With the task's
/// `settings`, the text describes these settings; without them, it holds for all settings.
std::string score_rule(const std::string& task, const config::Node& settings = {});

}  // namespace tessera::report
