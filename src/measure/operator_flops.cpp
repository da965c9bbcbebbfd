#include <ATen/ATen.h>

#include "src/measure/operator_flops.h"

namespace tessera {
namespace {

// Returns the FLOPs of one product of every token with every patch of its image: text [B, L, D], image [B, P, D].
std::int64_t group_product(const at::Tensor& text, const at::Tensor& image) {
  return 2 * text.numel() * image.size(1);
}

// Returns the FLOPs of the products of all kept patches [B, P, D] with all kept tokens [C, L, D].
std::int64_t kept_products(const at::Tensor& patches, const at::Tensor& patch_keep, const at::Tensor& token_keep) {
  return 2 * patches.size(2) * patch_keep.sum().item<std::int64_t>() * token_keep.sum().item<std::int64_t>();
}

// Returns true if max_similarity and token_max_projection have a kernel for the tokens' type. For other types they call LibTorch's
// products.
bool has_kernel(const at::Tensor& tokens) {
  return tokens.scalar_type() == at::kFloat || tokens.scalar_type() == at::kBFloat16;
}

// Returns the FLOPs of the products of each unmasked token with each row of the table, or nullopt if there is no kernel for the tokens'
// type. `inputs` are tokens [B, N, w], mask [B, N] or None, and table [V, w].
std::optional<std::int64_t> projection_product(c10::ArrayRef<const c10::IValue> inputs) {
  const at::Tensor tokens = inputs[0].toTensor();
  if (!has_kernel(tokens)) return std::nullopt;
  const std::int64_t real =
      inputs[1].isNone() ? tokens.size(0) * tokens.size(1) : inputs[1].toTensor().sum().item<std::int64_t>();
  return 2 * real * inputs[2].toTensor().numel();
}

}  // namespace

std::optional<std::int64_t> operator_flops(std::string_view name, c10::ArrayRef<const c10::IValue> inputs) {
  if (name == "tessera::_sparsify_group")  // two products: of text and patches (the similarities), and of weights and patches
    return 2 * group_product(inputs[0].toTensor(), inputs[1].toTensor());
  if (name == "tessera::_sparsify_group_backward") {
    // One product recomputes the similarities, and one computes the gradient of the weights. If requested, the gradient of the tokens takes
    // one more product, and the gradient of the patches takes two more.
    const auto wanted = inputs[inputs.size() - 1].toBoolList();
    return (2 + static_cast<int>(wanted.get(0)) + 2 * static_cast<int>(wanted.get(1))) *
           group_product(inputs[1].toTensor(), inputs[2].toTensor());
  }
  if (name == "tessera::_max_similarity") {
    const at::Tensor patches = inputs[0].toTensor();
    if (!has_kernel(patches)) return std::nullopt;
    return kept_products(patches, inputs[2].toTensor(), inputs[3].toTensor());
  }
  if (name == "tessera::_token_max_projection") return projection_product(inputs);
  // These backward passes have no matrix product and only add rows at the positions of the maxima.
  if (name == "tessera::_max_similarity_backward" || name == "tessera::_token_max_projection_backward")
    return has_kernel(inputs[2].toTensor()) ? std::optional<std::int64_t>(0) : std::nullopt;
  return std::nullopt;
}

std::int64_t operator_recomputed_flops(std::string_view name, c10::ArrayRef<const c10::IValue> inputs) {
  const bool groups = name == "tessera::_sparsify_group_backward";
  return groups ? group_product(inputs[1].toTensor(), inputs[2].toTensor()) : 0;
}

}  // namespace tessera
