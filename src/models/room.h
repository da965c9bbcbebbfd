#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/config/node.h>

namespace torch::nn {
class Module;
}

namespace tessera {

/// The largest number of tokens of a sequence that a setting may request, because attention takes time quadratic in it.
inline constexpr std::int64_t kMostTokens = 16384;

/// Calls `build`, which returns new tensors ("weights" of a model or an objective, say), and throws UserError if they need more memory than
/// this machine has free. During the call, large tensors are allocated but not filled, so that they need neither time nor memory; random
/// numbers are not drawn. The tensors' size depends on `settings` at `path`; the error names the largest numbers among them.
void check_room(const std::string& what, const std::string& path, const config::Node& settings,
                const std::function<std::vector<at::Tensor>()>& build);

/// Returns the module's parameters and buffers.
std::vector<at::Tensor> tensors_of(const torch::nn::Module& module);

}  // namespace tessera
