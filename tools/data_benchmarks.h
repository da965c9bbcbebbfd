#pragma once

#include <functional>

#include <CLI/CLI.hpp>

namespace tessera::tools {

/// `tessera-bench data`, `tessera-bench tokenizer` and `tessera-bench retrieval`: each adds its options, and returns what runs when it is chosen.
std::function<int()> add_data_benchmark(CLI::App& command);
std::function<int()> add_tokenizer_benchmark(CLI::App& command);
std::function<int()> add_retrieval_benchmark(CLI::App& command);

}  // namespace tessera::tools
