#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/support/error_of.h"
#include <tessera/objectives/objective.h>

/// Helpers that the tests of several objectives share. They read values from losses and check them.
namespace tessera {

inline std::map<std::string, double> terms_of(const Losses& losses) {
  std::map<std::string, double> out;
  for (const auto& [name, term] : losses.terms) out[name] = term.item<double>();
  return out;
}

/// Returns the tensor of this name, for example one of Losses::statistics.
inline at::Tensor tensor_of(const std::vector<std::pair<std::string, at::Tensor>>& all, const std::string& name) {
  for (const auto& [each, tensor] : all)
    if (each == name) return tensor;
  ADD_FAILURE() << "no " << name;
  return at::zeros({});
}

/// Returns the loss and its gradients. A leaf that the loss does not use has a gradient of 0.
inline std::vector<at::Tensor> loss_and_gradients(const at::Tensor& loss, const std::vector<at::Tensor>& leaves) {
  std::vector<at::Tensor> out{loss.detach()};
  const auto gradients = torch::autograd::grad({loss}, leaves, {}, std::nullopt, false, /*allow_unused=*/true);
  for (std::size_t i = 0; i < leaves.size(); ++i)
    out.push_back(gradients[i].defined() ? gradients[i] : at::zeros_like(leaves[i]));
  return out;
}

/// Expects the loss and its gradients to be the same for each of these chunk sizes as without chunks. `results` computes them for a setting
/// such as "chunk: 3".
inline void expect_chunks_change_nothing(std::initializer_list<int> chunks,
                                         const std::function<std::vector<at::Tensor>(const std::string& chunk)>& results) {
  const std::vector<at::Tensor> whole = results("chunk: null");
  for (const int chunk : chunks) {
    const std::vector<at::Tensor> tiled = results("chunk: " + std::to_string(chunk));
    ASSERT_EQ(tiled.size(), whole.size());
    for (std::size_t i = 0; i < whole.size(); ++i)
      EXPECT_TRUE(at::allclose(tiled[i], whole[i], 1e-9, 1e-10)) << "chunk " << chunk << ", result " << i;
  }
}

/// Returns the first line of the UserError or c10::Error that `body` throws, or "no error".
inline std::string message_of(const std::function<void()>& body) {
  const std::string message = error_of([&] {
    const std::string internal = error_of<c10::Error>(body);
    if (internal != "no error") throw UserError(internal);
  });
  return message.substr(0, message.find('\n'));
}

}  // namespace tessera
