#include "kernels/max_similarity/max_similarity.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "src/ops/dispatch.h"
#include "src/ops/kernel_call.h"
#include "src/ops/max_similarity.h"
#include "src/ops/max_similarity_tiles.h"
#include "src/ops/operators.h"
#include <tessera/ops/max_similarity.h>
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {
namespace max_similarity_parts {

using Chunk = std::optional<std::int64_t>;
using Pair = std::tuple<at::Tensor, at::Tensor>;
using Four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

constexpr std::int64_t kTileElements = 16 << 20;  // size of one tile of products
constexpr std::int64_t kMostRows = kernels::MaxSimilarityProblem::kMostRows;
using Place = kernels::MaxSimilarityProblem::Place;
constexpr at::ScalarType kPlace = at::kShort;

void check(const at::Tensor& patches, const at::Tensor& tokens, const at::Tensor& patch_keep,
           const at::Tensor& token_keep) {
  TORCH_CHECK(patches.dim() == 3 && patches.sym_size(1) > 0,
              "max_similarity: patches must be [B, P, D] with P at least 1, got ", patches.sym_sizes());
  TORCH_CHECK(tokens.dim() == 3 && tokens.sym_size(2) == patches.sym_size(2),
              "max_similarity: tokens must be [C, L, D] = [C, L, ", patches.sym_size(2), "], got ", tokens.sym_sizes());
  const at::ScalarType dtype = patches.scalar_type();
  TORCH_CHECK(tokens.scalar_type() == dtype &&
                  (dtype == at::kFloat || dtype == at::kDouble || (dtype == at::kBFloat16 && !patches.device().is_cpu())),
              "max_similarity: patches and tokens must both be float32, both float64 or, on a GPU, both bfloat16, got ",
              dtype, " and ", tokens.scalar_type());
  TORCH_CHECK(patches.sym_size(1) <= kMostRows && tokens.sym_size(1) <= kMostRows, "max_similarity: at most ",
              kMostRows, " patches and tokens, got ", patches.sym_size(1), " and ", tokens.sym_size(1));
  const auto check_keep = [](const char* name, const at::Tensor& keep, const at::Tensor& rows) {
    TORCH_CHECK(keep.scalar_type() == at::kBool && keep.dim() == 2 && keep.sym_size(0) == rows.sym_size(0) &&
                    keep.sym_size(1) == rows.sym_size(1),
                "max_similarity: ", name, " must be bool ", rows.sym_sizes().slice(0, 2), ", got ", keep.scalar_type(),
                " ", keep.sym_sizes());
  };
  check_keep("patch_keep", patch_keep, patches);
  check_keep("token_keep", token_keep, tokens);
  TORCH_CHECK(tokens.device() == patches.device() && patch_keep.device() == patches.device() &&
                  token_keep.device() == patches.device(),
              "max_similarity: patches, tokens, patch_keep and token_keep must be on one device, got ",
              patches.device(), ", ", tokens.device(), ", ", patch_keep.device(), " and ", token_keep.device());
}

kernels::MaxSimilarityProblem make_problem(const at::Tensor& patches, const at::Tensor& tokens) {
  return {patches.size(0), patches.size(1), tokens.size(0), tokens.size(1), patches.size(2), kernel_type(patches), nullptr};
}

void choose_configuration(kernels::MaxSimilarityProblem& problem, kernels::Pass pass, const at::Tensor& patches) {
  if (!patches.is_cuda()) return;
  const TuningKey key = max_similarity_tuning_key(pass, patches.scalar_type(), problem.patches, problem.tokens);
  problem.configuration = tuned_configuration(key, kernels::max_similarity_configurations(pass));
}

// Returns true if the kernels take the rows. On a GPU, long texts may need more shared memory or more threads than a block has.
bool fits(const at::Tensor& patches, const at::Tensor& tokens) {
  if (patches.is_cuda() && tokens.size(1) > kernels::MaxSimilarityProblem::kMostTokensOnGpu) return false;
  return has_kernels_for_type(patches, patches.is_cuda() ? kernels::cuda::max_similarity_block_memory(make_problem(patches, tokens)) : 0);
}

at::Tensor scratch(const kernels::MaxSimilarityProblem& problem, kernels::Pass pass, const at::Tensor& like) {
  return workspace(like.device().is_cpu() ? 0 : kernels::cuda::max_similarity_workspace(problem, pass), like);
}

at::TensorOptions similarity_options(const at::Tensor& patches) {
  return patches.options().dtype(compute_dtype(patches));
}

Four forward_on_device(const at::Tensor& patches, const at::Tensor& tokens, const at::Tensor& patch_keep,
                       const at::Tensor& token_keep, Chunk chunk) {
  check(patches, tokens, patch_keep, token_keep);
  const std::int64_t images = patches.size(0), places = patches.size(1), width = patches.size(2),
                     texts = tokens.size(0), words = tokens.size(1);
  const c10::OptionalDeviceGuard device(patches.device());
  if (words > 0 && width > 0 && !fits(patches, tokens)) {
    const std::int64_t per_text = std::max<std::int64_t>(1, images * places * words);
    const at::ScalarType dtype = compute_dtype(patches);
    return max_similarity_in_tiles(patches.to(dtype), tokens.to(dtype), patch_keep, token_keep,
                                   chunk.value_or(std::max<std::int64_t>(1, kTileElements / per_text)));
  }
  const at::TensorOptions numbers = similarity_options(patches), indices = numbers.dtype(kPlace);
  const at::Tensor i2t = at::zeros({images, texts}, numbers), t2i = at::zeros({images, texts}, numbers);
  const at::Tensor best_token = at::zeros({images, texts, places}, indices),
                   best_patch = at::zeros({images, texts, words}, indices);
  if (words == 0 || width == 0) return {i2t, t2i, best_token, best_patch};
  const at::Tensor x = patches.contiguous(), y = tokens.contiguous(), keep_x = patch_keep.contiguous(),
                   keep_y = token_keep.contiguous();
  kernels::MaxSimilarityForward call;
  call.problem = make_problem(x, y);
  choose_configuration(call.problem, kernels::Pass::kForward, x);
  call.patches = x.const_data_ptr();
  call.tokens = y.const_data_ptr();
  call.patch_keep = mask_bytes(keep_x);
  call.token_keep = mask_bytes(keep_y);
  call.i2t = i2t.mutable_data_ptr<float>();
  call.t2i = t2i.mutable_data_ptr<float>();
  call.best_token = best_token.mutable_data_ptr<Place>();
  call.best_patch = best_patch.mutable_data_ptr<Place>();
  const at::Tensor memory = scratch(call.problem, kernels::Pass::kForward, x);
  call.workspace = memory.mutable_data_ptr();
  check_status(x.device().is_cpu() ? kernels::cpu::max_similarity_forward(call, torch_threads())
                                   : kernels::cuda::max_similarity_forward(call, current_stream(x)));
  return {i2t, t2i, best_token, best_patch};
}

Pair backward_on_device(const at::Tensor& grad_i2t, const at::Tensor& grad_t2i, const at::Tensor& patches,
                        const at::Tensor& tokens, const at::Tensor& patch_keep, const at::Tensor& token_keep,
                        const at::Tensor& best_token, const at::Tensor& best_patch) {
  check(patches, tokens, patch_keep, token_keep);
  const c10::OptionalDeviceGuard device(patches.device());
  if (tokens.numel() == 0) return {at::zeros_like(patches), at::zeros_like(tokens)};
  if (!fits(patches, tokens)) {
    const at::ScalarType dtype = compute_dtype(patches);
    const auto [grad_patches, grad_tokens] = max_similarity_gradient(grad_i2t, grad_t2i, patches.to(dtype), tokens.to(dtype), patch_keep,
                                                                     token_keep, best_token, best_patch);
    return {grad_patches.to(patches.scalar_type()), grad_tokens.to(tokens.scalar_type())};
  }
  const at::Tensor x = patches.contiguous(), y = tokens.contiguous(), keep_x = patch_keep.contiguous(),
                   keep_y = token_keep.contiguous(), from_i2t = grad_i2t.contiguous(), from_t2i = grad_t2i.contiguous(),
                   token_places = best_token.contiguous(), patch_places = best_patch.contiguous();
  const at::Tensor grad_patches = at::empty(x.sizes(), x.options()), grad_tokens = at::empty(y.sizes(), y.options());
  kernels::MaxSimilarityBackward call;
  call.problem = make_problem(x, y);
  choose_configuration(call.problem, kernels::Pass::kBackward, x);
  call.patches = x.const_data_ptr();
  call.tokens = y.const_data_ptr();
  call.patch_keep = mask_bytes(keep_x);
  call.token_keep = mask_bytes(keep_y);
  call.best_token = token_places.const_data_ptr<Place>();
  call.best_patch = patch_places.const_data_ptr<Place>();
  call.grad_i2t = from_i2t.const_data_ptr<float>();
  call.grad_t2i = from_t2i.const_data_ptr<float>();
  call.grad_patches = grad_patches.mutable_data_ptr();
  call.grad_tokens = grad_tokens.mutable_data_ptr();
  const at::Tensor memory = scratch(call.problem, kernels::Pass::kBackward, x);
  call.workspace = memory.mutable_data_ptr();
  check_status(x.device().is_cpu() ? kernels::cpu::max_similarity_backward(call, torch_threads())
                                   : kernels::cuda::max_similarity_backward(call, current_stream(x)));
  return {grad_patches, grad_tokens};
}

Four forward_on_meta(const at::Tensor& patches, const at::Tensor& tokens, const at::Tensor& patch_keep,
                     const at::Tensor& token_keep, Chunk) {
  check(patches, tokens, patch_keep, token_keep);
  const c10::SymInt images = patches.sym_size(0), texts = tokens.sym_size(0);
  const at::TensorOptions numbers = similarity_options(patches), indices = numbers.dtype(kPlace);
  return {at::empty_symint({images, texts}, numbers), at::empty_symint({images, texts}, numbers),
          at::empty_symint({images, texts, patches.sym_size(1)}, indices),
          at::empty_symint({images, texts, tokens.sym_size(1)}, indices)};
}

Pair backward_on_meta(const at::Tensor&, const at::Tensor&, const at::Tensor& patches, const at::Tensor& tokens,
                      const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  return {at::empty_symint(patches.sym_sizes(), patches.options()),
          at::empty_symint(tokens.sym_sizes(), tokens.options())};
}

Four call_forward(const at::Tensor& patches, const at::Tensor& tokens, const at::Tensor& patch_keep,
                  const at::Tensor& token_keep, Chunk chunk) {
  static const auto forward = operation<decltype(forward_on_device)>("tessera::_max_similarity");
  return forward.call(patches, tokens, patch_keep, token_keep, chunk);
}

class MaxSimilarity : public torch::autograd::Function<MaxSimilarity> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, const at::Tensor& patches,
                                                const at::Tensor& tokens, const at::Tensor& patch_keep,
                                                const at::Tensor& token_keep, Chunk chunk) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto [i2t, t2i, best_token, best_patch] = call_forward(patches, tokens, patch_keep, token_keep, chunk);
    ctx->save_for_backward({patches, tokens, patch_keep, token_keep, best_token, best_patch});
    ctx->mark_non_differentiable({best_token, best_patch});
    return {i2t, t2i, best_token, best_patch};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "max_similarity has no second derivatives");
    static const auto backward = operation<decltype(backward_on_device)>("tessera::_max_similarity_backward");
    const auto saved = ctx->get_saved_variables();
    const auto [patches, tokens] =
        backward.call(gradients[0], gradients[1], saved[0], saved[1], saved[2], saved[3], saved[4], saved[5]);
    return {patches, tokens, {}, {}, {}};
  }
};

Four forward_with_gradient(const at::Tensor& patches, const at::Tensor& tokens, const at::Tensor& patch_keep,
                           const at::Tensor& token_keep, Chunk chunk) {
  const auto all = MaxSimilarity::apply(patches, tokens, patch_keep, token_keep, chunk);
  return {all[0], all[1], all[2], all[3]};
}

Pair operate(const at::Tensor& patches, const at::Tensor& tokens, const at::Tensor& patch_keep,
             const at::Tensor& token_keep, Chunk chunk) {
  check(patches, tokens, patch_keep, token_keep);
  TORCH_CHECK(chunk.value_or(1) > 0, "max_similarity: chunk must be at least 1, got ", chunk.value_or(1));
  const auto all = call_forward(patches, tokens, patch_keep, token_keep, chunk);
  return {std::get<0>(all), std::get<1>(all)};
}

Pair operate_without_autocast(const at::Tensor& patches, const at::Tensor& tokens, const at::Tensor& patch_keep,
                              const at::Tensor& token_keep, Chunk chunk) {
  const NoAutocast no_autocast;
  return operate(patches, tokens, patch_keep, token_keep, chunk);
}

}  // namespace max_similarity_parts
}  // namespace

TuningKey max_similarity_tuning_key(kernels::Pass pass, at::ScalarType type, std::int64_t patches, std::int64_t tokens) {
  return {"max_similarity", pass, type, {(patches + 15) / 16 * 16, (tokens + 7) / 8 * 8}};
}

void define_max_similarity(torch::Library& library) {
  using namespace max_similarity_parts;
  library.def(
      "max_similarity(Tensor patches, Tensor tokens, Tensor patch_keep, Tensor token_keep, *, int? chunk=None) -> "
      "(Tensor i2t, Tensor t2i)",
      {at::Tag::pt2_compliant_tag});
  library.def(
      "_max_similarity(Tensor patches, Tensor tokens, Tensor patch_keep, Tensor token_keep, int? chunk) -> "
      "(Tensor i2t, Tensor t2i, Tensor best_token, Tensor best_patch)",
      {at::Tag::pt2_compliant_tag});
  library.def(
      "_max_similarity_backward(Tensor grad_i2t, Tensor grad_t2i, Tensor patches, Tensor tokens, Tensor patch_keep, "
      "Tensor token_keep, Tensor best_token, Tensor best_patch) -> (Tensor grad_patches, Tensor grad_tokens)",
      {at::Tag::pt2_compliant_tag});
  implement<operate, operate_without_autocast>(library, "max_similarity");
  implement_passes<forward_on_device, backward_on_device, forward_on_meta, backward_on_meta, forward_with_gradient>(
      library, "_max_similarity");
}

std::pair<at::Tensor, at::Tensor> max_similarity(const at::Tensor& patches, const at::Tensor& tokens,
                                                 const at::Tensor& patch_keep, const at::Tensor& token_keep,
                                                 std::optional<std::int64_t> chunk) {
  using namespace max_similarity_parts;
  register_operators();
  static const auto registered = operation<decltype(operate)>("tessera::max_similarity");
  const auto [i2t, t2i] = registered.call(patches, tokens, patch_keep, token_keep, chunk);
  return {i2t, t2i};
}

}  // namespace tessera
