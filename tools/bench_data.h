#pragma once

#include <functional>

#include <CLI/CLI.hpp>

namespace tessera::tools {

/// `tessera-bench data`: adds itself with its options; returns what runs when it is chosen.
std::function<int()> add_data_benchmark(CLI::App& command);

}  // namespace tessera::tools
