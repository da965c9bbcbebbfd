#include "src/ops/token_max_projection_tiles.h"

#include <algorithm>
#include <limits>

#include <ATen/ATen.h>

namespace tessera {
namespace {

constexpr double kMasked = -std::numeric_limits<double>::infinity();
constexpr std::int64_t kTileElements = 4 << 20;  // size of one tile of products

// Calls each(first, count) for tiles of the vocabulary, so that [B, N, count] stays within kTileElements.
template <class Each>
void for_each_tile(const at::Tensor& tokens, std::int64_t vocabulary, Each each) {
  const std::int64_t positions = std::max<std::int64_t>(1, tokens.size(0) * tokens.size(1));
  const std::int64_t columns = std::max<std::int64_t>(1, kTileElements / positions);
  for (std::int64_t first = 0; first < vocabulary; first += columns) each(first, std::min(columns, vocabulary - first));
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> token_max_projection_in_tiles(const at::Tensor& tokens, const at::Tensor& mask,
                                                                 const at::Tensor& table, const at::Tensor& bias) {
  const std::int64_t batch = tokens.size(0), vocabulary = table.size(0);
  at::Tensor encoding = at::empty({batch, vocabulary}, tokens.options());
  at::Tensor argmax = at::empty({batch, vocabulary}, tokens.options().dtype(at::kLong));
  for_each_tile(tokens, vocabulary, [&](std::int64_t first, std::int64_t count) {
    at::Tensor products = at::matmul(tokens, table.narrow(0, first, count).t());  // [B, N, count]
    if (mask.defined()) products.masked_fill_(mask.logical_not().unsqueeze(-1), kMasked);
    const auto [value, position] = products.max(1);
    encoding.narrow(1, first, count).copy_(value.add(bias.narrow(0, first, count)).relu_().log1p_());
    argmax.narrow(1, first, count).copy_(position);
  });
  if (mask.defined()) {
    const at::Tensor empty = mask.any(1, /*keepdim=*/true).logical_not();  // [B, 1]
    encoding.masked_fill_(empty, 0);
    argmax.masked_fill_(empty, -1);
  }
  return {encoding, argmax};
}

std::tuple<at::Tensor, at::Tensor> token_max_projection_gradient(const at::Tensor& weight, const at::Tensor& tokens,
                                                                 const at::Tensor& mask, const at::Tensor& table,
                                                                 const at::Tensor& argmax) {
  const at::Tensor rows = mask.defined() ? tokens.masked_fill(mask.logical_not().unsqueeze(-1), 0) : tokens;
  at::Tensor grad_tokens = at::zeros_like(rows);
  at::Tensor grad_table = at::empty_like(table);
  for_each_tile(tokens, table.size(0), [&](std::int64_t first, std::int64_t count) {
    at::Tensor of_products = at::zeros({tokens.size(0), tokens.size(1), count}, tokens.options());
    of_products.scatter_(1, argmax.narrow(1, first, count).clamp_min(0).unsqueeze(1),
                         weight.narrow(1, first, count).unsqueeze(1));
    grad_tokens.add_(at::matmul(of_products, table.narrow(0, first, count)));
    grad_table.narrow(0, first, count).copy_(at::mm(of_products.flatten(0, 1).t(), rows.flatten(0, 1)));
  });
  return {grad_tokens, grad_table};
}

}  // namespace tessera
