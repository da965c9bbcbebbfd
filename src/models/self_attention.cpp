#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/attention/attention.h"
#include "src/models/cudnn_attention.h"
#include "src/models/self_attention.h"
#include "src/ops/kernel_call.h"
#include "src/ops/packed_weights.h"
#include <tessera/base/error.h>
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {
namespace self_attention_parts {

constexpr const char* kLibTorch = "libtorch";

// ---- the engine "composed": batched matrix products that store all weights. A measure for the others, in float64, too.

// Calls visit(first token, sequences, tokens of each) for sequences of equal length that follow one another.
template <class Visit>
void for_each_batch(const SelfAttentionProblem& p, Visit visit) {
  if (!p.offsets.defined()) return visit(0, p.sequences, p.longest);
  const at::Tensor offsets = p.offsets.to(at::kCPU, at::kLong);
  const auto at = offsets.accessor<std::int64_t, 1>();
  for (std::int64_t i = 0; i < p.sequences; ++i) visit(at[i], 1, at[i + 1] - at[i]);
}

// Returns [sequences, heads, tokens, ...] of a tensor whose rows [T, heads, ...] belong to tokens.
at::Tensor by_head(const at::Tensor& rows, std::int64_t first, std::int64_t sequences, std::int64_t tokens) {
  return rows.narrow(0, first, sequences * tokens).unflatten(0, {sequences, tokens}).transpose(1, 2);
}

double scale_of(const SelfAttentionProblem& p) {
  return 1 / std::sqrt(static_cast<double>(p.qkv.size(3)));
}

at::Tensor scores_of(const SelfAttentionProblem& p, const at::Tensor& query, const at::Tensor& key) {
  const at::Tensor scores = query.matmul(key.mT()) * scale_of(p);
  if (!p.causal) return scores;
  const at::Tensor later = at::ones({scores.size(-2), scores.size(-1)}, scores.options().dtype(at::kBool)).triu(1);
  return scores.masked_fill(later, -std::numeric_limits<double>::infinity());
}

std::vector<std::string> composed_options(const SelfAttentionProblem&) {
  return {""};
}

SelfAttentionResult composed_forward(const SelfAttentionProblem& p, const std::string&) {
  const at::TensorOptions options = p.qkv.options();
  const std::int64_t tokens = p.qkv.size(0), heads = p.qkv.size(2);
  const SelfAttentionResult out = {at::empty({tokens, heads, p.qkv.size(3)}, options),
                                   at::empty({tokens, heads}, options.dtype(compute_dtype(p.qkv)))};
  for_each_batch(p, [&](std::int64_t first, std::int64_t sequences, std::int64_t length) {
    const auto part = [&](std::int64_t i) { return to_compute(by_head(p.qkv.select(1, i), first, sequences, length)); };
    const at::Tensor scores = scores_of(p, part(0), part(1));
    const at::Tensor log_sums = scores.logsumexp(-1);
    by_head(out[0], first, sequences, length).copy_((scores - log_sums.unsqueeze(-1)).exp().matmul(part(2)));
    by_head(out[1], first, sequences, length).copy_(log_sums);
  });
  return out;
}

void composed_backward(const SelfAttentionProblem& p, const std::string&, const SelfAttentionResult& result, const at::Tensor& grad_output,
                       const at::Tensor& grad_qkv) {
  for_each_batch(p, [&](std::int64_t first, std::int64_t sequences, std::int64_t length) {
    const auto of = [&](const at::Tensor& rows) { return to_compute(by_head(rows, first, sequences, length)); };
    const auto put = [&](std::int64_t i, const at::Tensor& gradient) {
      by_head(grad_qkv.select(1, i), first, sequences, length).copy_(gradient);
    };
    const at::Tensor query = of(p.qkv.select(1, 0)), key = of(p.qkv.select(1, 1)), value = of(p.qkv.select(1, 2));
    const at::Tensor gradient = of(grad_output);
    const at::Tensor weights = (scores_of(p, query, key) - of(result[1]).unsqueeze(-1)).exp();
    const at::Tensor of_weights = gradient.matmul(value.mT()) - (gradient * of(result[0])).sum(-1, /*keepdim=*/true);
    const at::Tensor of_scores = weights * of_weights * scale_of(p);
    put(0, of_scores.matmul(key));
    put(1, of_scores.mT().matmul(query));
    put(2, weights.mT().matmul(gradient));
  });
}

// ---- the engine "hopper": the kernels of kernels/attention

kernels::AttentionProblem kernel_problem(const SelfAttentionProblem& p) {
  kernels::AttentionProblem out;
  out.sequences = p.sequences;
  out.rows = p.qkv.size(0);
  out.longest = p.longest;
  out.heads = p.qkv.size(2);
  out.head_width = p.qkv.size(3);
  out.type = kernel_type(p.qkv);
  if (p.offsets.defined()) out.offsets = p.offsets.const_data_ptr<std::int32_t>();
  out.causal = p.causal;
  out.scale = static_cast<float>(scale_of(p));
  return out;
}

std::vector<std::string> hopper_options(const SelfAttentionProblem& p) {
  const bool narrow = p.qkv.scalar_type() == at::kBFloat16;
  const bool fits = p.longest <= kernels::kMostAttentionTokens && kernels::is_attention_head_width(p.qkv.size(3));
  if (!p.qkv.is_cuda() || !narrow || !fits || !kernels::cuda::has_attention()) return {};
  return {""};
}

SelfAttentionResult hopper_forward(const SelfAttentionProblem& p, const std::string&) {
  const std::int64_t tokens = p.qkv.size(0), heads = p.qkv.size(2);
  const SelfAttentionResult out = {at::empty({tokens, heads, p.qkv.size(3)}, p.qkv.options()),
                                   at::empty({heads, tokens}, p.qkv.options().dtype(at::kFloat))};
  const kernels::AttentionForward call = {kernel_problem(p), p.qkv.const_data_ptr(), out[0].mutable_data_ptr(),
                                          out[1].mutable_data_ptr<float>()};
  check_status(kernels::cuda::attention_forward(call, current_stream(p.qkv)));
  return out;
}

void hopper_backward(const SelfAttentionProblem& p, const std::string&, const SelfAttentionResult& result, const at::Tensor& grad_output,
                     const at::Tensor& grad_qkv) {
  const kernels::AttentionBackward call = {kernel_problem(p),
                                           p.qkv.const_data_ptr(),
                                           result[0].const_data_ptr(),
                                           result[1].const_data_ptr<float>(),
                                           grad_output.const_data_ptr(),
                                           grad_qkv.mutable_data_ptr()};
  check_status(kernels::cuda::attention_backward(call, current_stream(p.qkv)));
}

// ---- the kernel for inference on the CPU, which packed weights go with

bool suits_cpu_kernel(const SelfAttentionProblem& p) {
  return PackedWeights::in_scope() && !at::GradMode::is_enabled() && p.qkv.is_cpu() && p.qkv.scalar_type() == at::kFloat &&
         p.longest <= kernels::kMostAttentionTokens && kernels::cpu::has_attention();
}

at::Tensor cpu_attention(const SelfAttentionProblem& p) {
  const at::Tensor out = at::empty({p.qkv.size(0), p.qkv.size(2), p.qkv.size(3)}, p.qkv.options());
  kernels::AttentionProblem problem = kernel_problem(p);
  if (p.offsets.defined()) problem.sequences = p.offsets.size(0) - 1;
  check_status(kernels::cpu::attention_forward({problem, p.qkv.const_data_ptr(), out.mutable_data_ptr()}, torch_threads()));
  return out;
}

// ---- the choice of an engine

constexpr AttentionEngine kEngines[] = {
    {"composed", true, composed_options, composed_forward, composed_backward},
    {"hopper", false, hopper_options, hopper_forward, hopper_backward},
#if defined(TESSERA_WITH_CUDNN_FRONTEND)
    {"cudnn", false, cudnn_attention_options, cudnn_attention_forward, cudnn_attention_backward},
#endif
};

// Returns the engine of a configuration, and its option.
std::pair<const AttentionEngine*, std::string> engine_of(const std::string& configuration, const TuningKey& key) {
  const std::size_t slash = std::min(configuration.find('/'), configuration.size());
  const std::string option = slash < configuration.size() ? configuration.substr(slash + 1) : "";
  for (const AttentionEngine& engine : kEngines)
    if (engine.name == configuration.substr(0, slash)) return {&engine, option};
  refuse_tuned_configuration(key, concat("this build has no attention ", configuration));
}

// ---- the autograd function

// Calls run() such that profilers and the count of FLOPs see an operator.
template <class Run>
auto recorded(const char* name, const SelfAttentionProblem& p, Run run) {
  const std::array<c10::IValue, 4> inputs = {p.qkv, p.offsets, p.sequences, p.longest};
  RECORD_FUNCTION(name, c10::ArrayRef<const c10::IValue>(inputs.data(), inputs.size()));
  return run();
}

class SelfAttention : public torch::autograd::Function<SelfAttention> {
 public:
  struct Call : torch::CustomClassHolder {
    SelfAttentionProblem problem;  // without its tensors after the forward pass, which autograd saves instead
    const AttentionEngine* engine = nullptr;
    std::string option;
  };

  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& qkv, const c10::intrusive_ptr<Call>& call) {
    const NoAutocast no_autocast;
    const c10::OptionalDeviceGuard device(qkv.device());
    SelfAttentionProblem& p = call->problem;
    const SelfAttentionResult result = recorded("tessera::_self_attention", p, [&] { return call->engine->forward(p, call->option); });
    ctx->save_for_backward({qkv, result[0], result[1], p.offsets});
    ctx->saved_data["call"] = at::IValue::make_capsule(call);
    p.qkv.reset();
    p.offsets.reset();
    return result[0];
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx, torch::autograd::variable_list gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "self-attention has no second derivatives with an engine other than LibTorch's");
    const NoAutocast no_autocast;
    const auto saved = ctx->get_saved_variables();
    const auto call = c10::static_intrusive_pointer_cast<Call>(ctx->saved_data["call"].toCapsule());
    SelfAttentionProblem p = call->problem;
    p.qkv = saved[0];
    p.offsets = saved[3];
    const c10::OptionalDeviceGuard device(p.qkv.device());
    const at::Tensor grad_qkv = at::empty_like(p.qkv);
    recorded("tessera::_self_attention_backward", p,
             [&] { call->engine->backward(p, call->option, {saved[1], saved[2]}, gradients[0].contiguous(), grad_qkv); });
    return {grad_qkv, {}};
  }
};

}  // namespace self_attention_parts
}  // namespace

std::vector<std::string> attention_configurations(const SelfAttentionProblem& problem) {
  std::vector<std::string> out = {self_attention_parts::kLibTorch};
  for (const AttentionEngine& engine : self_attention_parts::kEngines)
    for (const std::string& option : engine.options(problem))
      out.push_back(option.empty() ? std::string(engine.name) : concat(engine.name, "/", option));
  return out;
}

TuningKey attention_tuning_key(const SelfAttentionProblem& p) {
  const std::int64_t tokens = (p.longest + 7) / 8 * 8;
  return {"self_attention", kernels::Pass::kBackward, p.qkv.scalar_type(), {tokens, p.qkv.size(3), p.causal, p.offsets.defined()}};
}

std::optional<SelfAttentionProblem> attention_problem(const at::Tensor& qkv, std::int64_t heads, const AttentionMask& mask) {
  if (mask.allowed.defined() || qkv.numel() == 0) return std::nullopt;
  SelfAttentionProblem out;
  out.qkv = qkv.contiguous().view({-1, 3, heads, qkv.size(-1) / (3 * heads)});
  out.causal = mask.causal;
  if (mask.packed.defined()) {
    out.offsets = mask.packed.offsets;
    out.sequences = mask.packed.rows;
    out.longest = mask.packed.length;  // not that of the batch's longest row: the choice must not depend on the batch
  } else {
    out.sequences = qkv.size(0);
    out.longest = qkv.size(1);
  }
  return out;
}

at::Tensor self_attention(const at::Tensor& qkv, std::int64_t heads, const AttentionMask& mask) {
  using namespace self_attention_parts;
  if (const std::optional<SelfAttentionProblem> problem = attention_problem(qkv, heads, mask)) {
    std::vector<std::int64_t> sizes = qkv.sizes().vec();
    sizes.back() /= 3;
    if (suits_cpu_kernel(*problem))
      return recorded("tessera::_self_attention", *problem, [&] { return cpu_attention(*problem); }).view(sizes);
    const TuningKey key = attention_tuning_key(*problem);
    const char* const configuration = tuned_configuration(key);
    const auto call = c10::make_intrusive<SelfAttention::Call>();
    if (configuration != nullptr && configuration != std::string_view(kLibTorch))
      std::tie(call->engine, call->option) = engine_of(configuration, key);
    if (call->engine != nullptr && (qkv.is_cuda() || call->engine->on_cpu)) {
      call->problem = *problem;
      return SelfAttention::apply(problem->qkv, call).view(sizes);
    }
  }
  const std::vector<at::Tensor> each = qkv.chunk(3, -1);
  return attend(each[0], each[1], each[2], heads, mask);
}

}  // namespace tessera
