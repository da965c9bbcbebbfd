#include <array>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/sparsify_group/sparsify_group.h"
#include "src/ops/dispatch.h"
#include "src/ops/kernel_call.h"
#include "src/ops/operators.h"
#include "src/ops/sparsify_group.h"

namespace tessera {
namespace {
namespace sparsify_group_fused_parts {

using kernels::Pass;
using Threshold = std::optional<double>;
using Pair = std::tuple<at::Tensor, at::Tensor>;

kernels::SparsifyGroupProblem make_problem(Pass pass, const at::Tensor& text, const at::Tensor& image, bool softmax,
                                           Threshold threshold, double softmax_temperature, bool tf32) {
  kernels::SparsifyGroupProblem problem;
  problem.batch = text.size(0);
  problem.tokens = text.size(1);
  problem.patches = image.size(1);
  problem.width = text.size(2);
  problem.type = kernel_type(text);
  problem.tf32 = tf32;
  problem.weights = softmax ? kernels::PatchWeights::kSoftmax : kernels::PatchWeights::kMinMax;
  problem.threshold =
      threshold ? static_cast<float>(*threshold) : kernels::paper_threshold(std::max<std::int64_t>(1, problem.patches));
  problem.softmax_temperature = static_cast<float>(softmax_temperature);
  if (text.is_cuda()) {
    static const std::vector<std::string> known = kernels::sparsify_group_configurations();
    problem.configuration =
        tuned_configuration(sparsify_group_tuning_key(pass, text.scalar_type(), problem.tokens, problem.patches), known);
  }
  return problem;
}

kernels::ConstRows rows_of(const at::Tensor& x) {
  return {x.const_data_ptr(), x.stride(0), x.stride(1)};
}
kernels::Rows rows_of(at::Tensor& x) {
  return x.defined() ? kernels::Rows{x.mutable_data_ptr(), x.stride(0), x.stride(1)} : kernels::Rows{};
}

void check_types(const at::Tensor& text, const at::Tensor& image) {
  TORCH_CHECK(text.scalar_type() == image.scalar_type() &&
                  (text.scalar_type() == at::kFloat || text.scalar_type() == at::kBFloat16),
              "_sparsify_group: text_tokens and image_tokens must both be float32 or both bfloat16, got ",
              text.scalar_type(), " and ", image.scalar_type());
}

at::Tensor scratch(const kernels::SparsifyGroupProblem& problem, Pass pass, const kernels::Parallel& threads,
                   const at::Tensor& like) {
  return workspace(like.device().is_cpu() ? kernels::cpu::sparsify_group_workspace(problem, pass, threads)
                                          : kernels::cuda::sparsify_group_workspace(problem, pass),
                   like);
}

Pair forward_on_device(const at::Tensor& text_tokens, const at::Tensor& image_tokens, const at::Tensor& text_mask,
                       bool softmax, Threshold threshold, double softmax_temperature, bool tf32) {
  check_sparsify_group(text_tokens, image_tokens, text_mask);
  check_types(text_tokens, image_tokens);
  const c10::OptionalDeviceGuard device(text_tokens.device());
  const at::Tensor text = contiguous_rows(text_tokens), image = contiguous_rows(image_tokens),
                   mask = text_mask.contiguous();
  const kernels::Parallel threads = torch_threads();
  at::Tensor grouped = at::empty(text.sizes(), text.options());
  at::Tensor statistics =
      at::empty({text.size(0), text.size(1), kernels::kRowStatistics}, text.options().dtype(at::kFloat));
  kernels::SparsifyGroupForward call;
  call.problem = make_problem(Pass::kForward, text, image, softmax, threshold, softmax_temperature, tf32);
  call.text_tokens = rows_of(text);
  call.image_tokens = rows_of(image);
  call.text_mask = mask_bytes(mask);
  call.grouped = rows_of(grouped);
  call.row_statistics = statistics.mutable_data_ptr<float>();
  const at::Tensor memory = scratch(call.problem, Pass::kForward, threads, text);
  call.workspace = memory.mutable_data_ptr();
  check_status(text.device().is_cpu() ? kernels::cpu::sparsify_group_forward(call, threads)
                                      : kernels::cuda::sparsify_group_forward(call, current_stream(text)));
  return {grouped, statistics};
}

Pair backward_on_device(const at::Tensor& grad_grouped, const at::Tensor& text_tokens, const at::Tensor& image_tokens,
                        const at::Tensor& text_mask, const at::Tensor& statistics, bool softmax, Threshold threshold,
                        double softmax_temperature, bool tf32, std::array<bool, 2> output_mask) {
  check_sparsify_group(text_tokens, image_tokens, text_mask);
  check_types(text_tokens, image_tokens);
  TORCH_CHECK(grad_grouped.sizes() == text_tokens.sizes(),
              "_sparsify_group_backward: grad_grouped must be [B, L, D] = ", text_tokens.sizes(), ", got ",
              grad_grouped.sizes());
  const c10::OptionalDeviceGuard device(text_tokens.device());
  const at::Tensor text = contiguous_rows(text_tokens), image = contiguous_rows(image_tokens),
                   mask = text_mask.contiguous(), saved = statistics.contiguous(),
                   // Its rows are aligned like those of the forward pass's arguments, so that the kernel of the forward pass can run.
                   gradient = grad_grouped.to(text.scalar_type()).contiguous();
  const kernels::Parallel threads = torch_threads();
  at::Tensor grad_text, grad_image;
  if (output_mask[0]) grad_text = at::empty(text.sizes(), text.options());
  if (output_mask[1]) grad_image = at::empty(image.sizes(), image.options());
  kernels::SparsifyGroupBackward call;
  call.problem = make_problem(Pass::kBackward, text, image, softmax, threshold, softmax_temperature, tf32);
  call.text_tokens = rows_of(text);
  call.image_tokens = rows_of(image);
  call.text_mask = mask_bytes(mask);
  call.grad_grouped = rows_of(gradient);
  call.row_statistics = saved.const_data_ptr<float>();
  call.grad_text_tokens = rows_of(grad_text);
  call.grad_image_tokens = rows_of(grad_image);
  const at::Tensor memory = scratch(call.problem, Pass::kBackward, threads, text);
  call.workspace = memory.mutable_data_ptr();
  check_status(text.device().is_cpu() ? kernels::cpu::sparsify_group_backward(call, threads)
                                      : kernels::cuda::sparsify_group_backward(call, current_stream(text)));
  return {grad_text, grad_image};
}

Pair forward_on_meta(const at::Tensor& text, const at::Tensor& image, const at::Tensor& mask, bool, Threshold, double, bool) {
  check_sparsify_group(text, image, mask);
  return {at::empty_symint(text.sym_sizes(), text.options()),
          at::empty_symint({text.sym_size(0), text.sym_size(1), kernels::kRowStatistics},
                           text.options().dtype(at::kFloat))};
}

Pair backward_on_meta(const at::Tensor&, const at::Tensor& text, const at::Tensor& image, const at::Tensor&,
                      const at::Tensor&, bool, Threshold, double, bool, std::array<bool, 2> output_mask) {
  return {output_mask[0] ? at::empty_symint(text.sym_sizes(), text.options()) : at::Tensor(),
          output_mask[1] ? at::empty_symint(image.sym_sizes(), image.options()) : at::Tensor()};
}

Pair call_forward(const at::Tensor& text, const at::Tensor& image, const at::Tensor& mask, bool softmax,
                  Threshold threshold, double softmax_temperature, bool tf32) {
  static const auto forward = operation<decltype(forward_on_device)>("tessera::_sparsify_group");
  return forward.call(text, image, mask, softmax, threshold, softmax_temperature, tf32);
}

class FusedSparsifyGroup : public torch::autograd::Function<FusedSparsifyGroup> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, const at::Tensor& text,
                                                const at::Tensor& image, const at::Tensor& mask, bool softmax,
                                                Threshold threshold, double softmax_temperature, bool tf32) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto [grouped, statistics] = call_forward(text, image, mask, softmax, threshold, softmax_temperature, tf32);
    ctx->save_for_backward({text, image, mask, statistics});
    ctx->saved_data["softmax"] = softmax;
    ctx->saved_data["threshold"] = threshold;
    ctx->saved_data["softmax_temperature"] = softmax_temperature;
    // The backward pass must find the same similarities at the minimum as the forward pass, even if the global setting changes in between.
    ctx->saved_data["tf32"] = tf32;
    ctx->mark_non_differentiable({statistics});
    return {grouped, statistics};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "sparsify_group has no second derivatives in float32 and bfloat16: give it float64 tokens");
    static const auto backward = operation<decltype(backward_on_device)>("tessera::_sparsify_group_backward");
    const auto saved = ctx->get_saved_variables();
    const auto [grad_text, grad_image] = backward.call(
        gradients[0], saved[0], saved[1], saved[2], saved[3], ctx->saved_data["softmax"].toBool(),
        ctx->saved_data["threshold"].toOptional<double>(), ctx->saved_data["softmax_temperature"].toDouble(),
        ctx->saved_data["tf32"].toBool(),
        {ctx->needs_input_grad(0), ctx->needs_input_grad(1)});
    return {grad_text, grad_image, {}, {}, {}, {}, {}};
  }
};

Pair forward_with_gradient(const at::Tensor& text, const at::Tensor& image, const at::Tensor& mask, bool softmax,
                           Threshold threshold, double softmax_temperature, bool tf32) {
  const auto both = FusedSparsifyGroup::apply(text, image, mask, softmax, threshold, softmax_temperature, tf32);
  return {both[0], both[1]};
}

}  // namespace sparsify_group_fused_parts
}  // namespace

std::tuple<at::Tensor, at::Tensor> fused_sparsify_group(const at::Tensor& text_tokens, const at::Tensor& image_tokens,
                                                        const at::Tensor& text_mask, bool softmax, std::optional<double> threshold,
                                                        double softmax_temperature, bool tf32) {
  using namespace sparsify_group_fused_parts;
  return call_forward(text_tokens, image_tokens, text_mask, softmax, threshold, softmax_temperature, tf32);
}

TuningKey sparsify_group_tuning_key(kernels::Pass pass, at::ScalarType type, std::int64_t tokens, std::int64_t patches) {
  const auto whole = [](std::int64_t rows) { return (rows + 15) / 16 * 16; };
  return {"sparsify_group", pass, type, {whole(tokens), whole(patches)}};
}

void define_fused_sparsify_group(torch::Library& library) {
  using namespace sparsify_group_fused_parts;
  library.def(
      "_sparsify_group(Tensor text_tokens, Tensor image_tokens, Tensor text_mask, bool softmax, float? threshold, "
      "float softmax_temperature, bool tf32=False) -> (Tensor grouped, Tensor row_statistics)",
      {at::Tag::pt2_compliant_tag});
  library.def(
      "_sparsify_group_backward(Tensor grad_grouped, Tensor text_tokens, Tensor image_tokens, Tensor text_mask, "
      "Tensor row_statistics, bool softmax, float? threshold, float softmax_temperature, bool tf32, bool[2] output_mask) -> "
      "(Tensor grad_text_tokens, Tensor grad_image_tokens)",
      {at::Tag::pt2_compliant_tag});
  implement_passes<forward_on_device, backward_on_device, forward_on_meta, backward_on_meta, forward_with_gradient>(
      library, "_sparsify_group");
}

}  // namespace tessera
