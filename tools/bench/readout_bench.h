#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/config/registry.h>

namespace tessera::bench {

struct TokenShape {
  std::int64_t batch, tokens, width;  // B, N, d
};

/// Parses "32x50x768". Throws UserError naming the option.
TokenShape parse_token_shape(const std::string& text);

struct NamedReadout {
  std::string label;
  config::ModuleSettings choice;
};

/// Parses `gap`, or YAML such as `{name: sparo, slots: 128}`. Throws UserError.
NamedReadout parse_readout(const std::string& text);

struct ReadoutBenchSettings {
  std::vector<NamedReadout> readouts;
  std::vector<TokenShape> shapes;
  at::Device device{at::kCPU};
  at::ScalarType dtype = at::kFloat;  // with bfloat16, read-outs run under autocast
  int repeats = 9;
  double time_limit = 20;  // seconds per measurement
  std::function<void(const std::string&)> progress;
};

/// The cost of one forward and backward pass of a read-out, or of a transformer block, over random tokens.
struct ReadoutCost {
  std::string name, shape;
  std::int64_t parameters = 0;
  double flops = 0;         // FLOPs for the whole batch
  double seconds = 0;       // median
  std::int64_t memory = 0;  // peak bytes in addition to tokens and weights
};

struct ReadoutBench {
  std::string machine;
  at::ScalarType dtype = at::kFloat;
  std::vector<ReadoutCost> costs;  // ordered by shape; for each shape, the cost of the transformer block comes first
};

ReadoutBench measure_readouts(const ReadoutBenchSettings& settings);

std::string to_markdown(const ReadoutBench& bench);
std::string to_json(const ReadoutBench& bench);

}  // namespace tessera::bench
