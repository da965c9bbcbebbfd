#pragma once

#include <functional>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

namespace tessera {

/// Compares autograd's gradient of a scalar function with central differences, in float64.
/// leaves  float64 leaves that require grad, such as inputs and parameters; the check changes them in place and restores them
/// loss    recomputes the scalar from the leaves
/// Every element is checked: |analytic - numeric| <= tolerance * (1 + max|numeric|).
inline void expect_gradients_match(const std::vector<at::Tensor>& leaves, const std::function<at::Tensor()>& loss,
                                   double tolerance = 1e-6, double step = 1e-6) {
  const auto gradients = torch::autograd::grad({loss()}, leaves, {}, std::nullopt, false, /*allow_unused=*/true);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    ASSERT_EQ(leaves[i].scalar_type(), at::kDouble) << "leaf " << i;
    at::Tensor values = leaves[i].variable_data();  // shares the leaf's memory, but is not part of the autograd graph
    at::Tensor numeric = at::zeros(values.sizes(), at::kDouble);
    const at::NoGradGuard no_grad;
    for (std::int64_t k = 0; k < values.numel(); ++k) {
      // Converts the flat position to indices, so that leaves need not be contiguous.
      std::int64_t rest = k;
      at::Tensor element = values, out = numeric;
      for (std::int64_t d = 0; d < values.dim(); ++d) {
        std::int64_t inner = 1;
        for (std::int64_t e = d + 1; e < values.dim(); ++e) inner *= values.size(e);
        element = element[rest / inner];
        out = out[rest / inner];
        rest %= inner;
      }
      const double before = element.item<double>();
      element.fill_(before + step);
      const double above = loss().item<double>();
      element.fill_(before - step);
      const double below = loss().item<double>();
      element.fill_(before);
      out.fill_((above - below) / (2 * step));
    }
    if (values.numel() == 0) continue;
    const at::Tensor analytic = gradients[i].defined() ? gradients[i] : at::zeros_like(numeric);
    const double error = (analytic - numeric).abs().max().item<double>();
    EXPECT_LE(error, tolerance * (1 + numeric.abs().max().item<double>()))
        << "leaf " << i << " of shape " << values.sizes();
  }
}

}  // namespace tessera
