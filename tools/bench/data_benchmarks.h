#pragma once

#include <functional>

#include <CLI/CLI.hpp>

namespace tessera::tools {

/// Each of these functions adds the options of one subcommand (`tessera-bench data`, `tokenizer` or `retrieval`) and returns the function
/// that runs it.
std::function<int()> add_data_benchmark(CLI::App& command);
std::function<int()> add_tokenizer_benchmark(CLI::App& command);
std::function<int()> add_retrieval_benchmark(CLI::App& command);

}  // namespace tessera::tools
