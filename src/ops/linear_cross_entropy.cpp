#include "kernels/linear_cross_entropy/linear_cross_entropy.h"

#include <algorithm>
#include <array>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "src/ops/kernel_call.h"
#include "src/ops/operators.h"
#include <tessera/ops/linear_cross_entropy.h>
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {

using Bias = std::optional<at::Tensor>;
using Wanted = std::array<bool, 3>;  // the gradients of hidden, weight and bias
using Four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

constexpr std::int64_t kTileElements = 16 << 20;  // of one tile of logits

// Asks for no size as a number, so that tracing with symbolic sizes goes through it.
void check(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets, const Bias& bias) {
  TORCH_CHECK(hidden.dim() == 2 && hidden.sym_size(1) > 0 && hidden.is_floating_point(),
              "linear_cross_entropy: hidden must be floating [T, D] with D at least 1, got ", hidden.scalar_type(), " ",
              hidden.sym_sizes());
  TORCH_CHECK(weight.dim() == 2 && weight.sym_size(0) > 0 && weight.sym_size(1) == hidden.sym_size(1) &&
                  weight.scalar_type() == hidden.scalar_type(),
              "linear_cross_entropy: weight must be ", hidden.scalar_type(), " [V, D] = [V, ", hidden.sym_size(1),
              "] as hidden is, got ", weight.scalar_type(), " ", weight.sym_sizes());
  TORCH_CHECK(targets.dim() == 1 && targets.sym_size(0) == hidden.sym_size(0) && targets.scalar_type() == at::kLong,
              "linear_cross_entropy: targets must be int64 [T] = [", hidden.sym_size(0), "], got ",
              targets.scalar_type(), " ", targets.sym_sizes());
  TORCH_CHECK(!bias || (bias->dim() == 1 && bias->sym_size(0) == weight.sym_size(0) && bias->is_floating_point()),
              "linear_cross_entropy: bias must be floating [V] = [", weight.sym_size(0), "], got ", bias->scalar_type(),
              " ", bias->sym_sizes());
  TORCH_CHECK(weight.device() == hidden.device() && targets.device() == hidden.device() &&
                  (!bias || bias->device() == hidden.device()),
              "linear_cross_entropy: hidden, weight, targets and bias must be on one device, got ", hidden.device(),
              ", ", weight.device(), ", ", targets.device(), " and ", bias ? bias->device() : hidden.device());
}

// Negative where the target is ignored. An id that is neither a row of the weight nor ignore_index is an error.
at::Tensor checked_ids(const at::Tensor& targets, std::int64_t vocabulary, std::int64_t ignore_index) {
  const at::Tensor ignored = targets == ignore_index;
  const at::Tensor bad = targets.lt(0).logical_or_(targets >= vocabulary).logical_and_(ignored.logical_not());
  if (!targets.is_cpu()) {  // which one it is cannot be asked without waiting for the device
    at::_assert_async(bad.any().logical_not(),
                      "linear_cross_entropy: a target is neither a row of weight nor ignore_index");
  } else if (bad.any().item<bool>()) {
    const std::int64_t place = bad.nonzero()[0].item<std::int64_t>();
    TORCH_CHECK(false, "linear_cross_entropy: targets[", place, "] is ", targets[place].item<std::int64_t>(),
                ", but must be in [0, ", vocabulary, ") or ignore_index = ", ignore_index);
  }
  return targets.masked_fill(ignored, -1);
}

bool has_kernel(const at::Tensor& hidden) {
  const bool narrow = hidden.scalar_type() == at::kBFloat16 && !hidden.device().is_cpu();
  return (narrow || hidden.scalar_type() == at::kFloat) && has_kernels(hidden);
}

// to = a b, or with `add` to += a b. A GPU multiplies bfloat16 into float32.
void multiply(at::Tensor to, const at::Tensor& a, const at::Tensor& b, bool add) {
  if (a.scalar_type() == to.scalar_type())
    at::addmm_out(to, to, a, b, /*beta=*/add ? 1 : 0);
  else
    at::addmm_out(to, to, a, b, to.scalar_type(), /*beta=*/add ? 1 : 0);
}

// A tile's losses from tensor operations; with `gradient` the logits become theirs.
void finish_tile_in_place(at::Tensor logits, const at::Tensor& ids, const at::Tensor& losses, bool gradient) {
  const at::Tensor place = ids.clamp_min(0).unsqueeze(1), ignored = ids.lt(0);  // [rows, 1], [rows]
  const at::Tensor normalizer = logits.logsumexp(1, /*keepdim=*/true);
  losses.copy_((normalizer - logits.gather(1, place)).squeeze(1).masked_fill_(ignored, 0));
  if (!gradient) return;
  logits.sub_(normalizer).exp_();
  logits.scatter_add_(1, place, at::full_like(place, -1, logits.options()));
  logits.masked_fill_(ignored.unsqueeze(1), 0);
}

// From logits [rows, V] the losses [rows] and the logits' gradient [rows, V]: undefined if not wanted, and `logits`
// itself where the two have one type.
void finish_tile(const at::Tensor& logits, const at::Tensor& ids, const at::Tensor& losses,
                 const at::Tensor& gradient) {
  if (!has_kernel(logits)) return finish_tile_in_place(logits, ids, losses, gradient.defined());
  kernels::CrossEntropyTile call;
  call.rows = logits.size(0);
  call.columns = logits.size(1);
  call.logits = logits.const_data_ptr<float>();
  call.targets = ids.const_data_ptr<std::int64_t>();
  call.losses = losses.mutable_data_ptr<float>();
  if (gradient.defined()) {
    call.gradient = gradient.mutable_data_ptr();
    call.type = kernel_type(gradient);
  }
  check_status(logits.is_cpu() ? kernels::cpu::cross_entropy_tile(call, torch_threads())
                               : kernels::cuda::cross_entropy_tile(call, current_stream(logits)));
}

// The rows that take part in products, with their ids.
struct Rows {
  at::Tensor x, ids;
  at::Tensor places;  // among those of hidden; undefined: all of them
};

// On the CPU ignored rows are left out. A GPU would have to wait for their number and multiplies zeros.
Rows rows_of(const at::Tensor& hidden, const at::Tensor& ids) {
  if (!hidden.is_cpu()) return {hidden.masked_fill(ids.lt(0).unsqueeze(1), 0), ids, {}};
  const at::Tensor places = ids.ge(0).nonzero().squeeze(1);
  return {hidden.index_select(0, places), ids.index_select(0, places), places};
}

// The sum of all losses, and its gradients: undefined where not wanted.
Four forward_on_device(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets, const Bias& bias,
                       std::int64_t ignore_index, Wanted wanted) {
  check(hidden, weight, targets, bias);
  const c10::OptionalDeviceGuard device(hidden.device());
  const std::int64_t vocabulary = weight.size(0);
  const Rows rows = rows_of(hidden, checked_ids(targets, vocabulary, ignore_index));
  const std::int64_t count = rows.ids.size(0),
                     most = std::min(count, std::max<std::int64_t>(1, kTileElements / vocabulary));
  const at::TensorOptions numbers = hidden.options().dtype(compute_dtype(hidden));
  const at::Tensor losses = at::empty({count}, numbers), tile = at::empty({most, vocabulary}, numbers);
  at::Tensor tile_gradient, grad_hidden, grad_weight, grad_bias;
  if (wanted[0] || wanted[1] || wanted[2])
    tile_gradient = hidden.scalar_type() == tile.scalar_type() ? tile : at::empty(tile.sizes(), hidden.options());
  if (wanted[0]) grad_hidden = at::empty(rows.x.sizes(), numbers);
  if (wanted[1]) grad_weight = at::zeros(weight.sizes(), numbers);
  if (wanted[2]) grad_bias = at::zeros({vocabulary}, numbers);
  for (std::int64_t first = 0; first < count; first += most) {
    const std::int64_t height = std::min(most, count - first);
    const at::Tensor x = rows.x.narrow(0, first, height), logits = tile.narrow(0, 0, height),
                     gradient = tile_gradient.defined() ? tile_gradient.narrow(0, 0, height) : at::Tensor();
    multiply(logits, x, weight.t(), /*add=*/false);
    if (bias) logits.add_(*bias);
    finish_tile(logits, rows.ids.narrow(0, first, height), losses.narrow(0, first, height), gradient);
    if (wanted[0]) multiply(grad_hidden.narrow(0, first, height), gradient, weight, /*add=*/false);
    if (wanted[1]) multiply(grad_weight, gradient.t(), x, /*add=*/true);
    if (wanted[2]) grad_bias.add_(gradient.sum(0, /*keepdim=*/false, grad_bias.scalar_type()));
  }
  if (wanted[0] && rows.places.defined())
    grad_hidden = at::zeros(hidden.sizes(), numbers).index_copy_(0, rows.places, grad_hidden);
  return {losses.sum(), grad_hidden, grad_weight, grad_bias};
}

Four forward_on_meta(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets, const Bias& bias,
                     std::int64_t, Wanted wanted) {
  check(hidden, weight, targets, bias);
  const at::TensorOptions options = hidden.options().dtype(compute_dtype(hidden));
  const auto like = [&](bool is_wanted, const at::Tensor& tensor) {
    return is_wanted ? at::empty_symint(tensor.sym_sizes(), options) : at::Tensor();
  };
  return {at::empty({}, options), like(wanted[0], hidden), like(wanted[1], weight),
          wanted[2] ? at::empty_symint({weight.sym_size(0)}, options) : at::Tensor()};
}

Four call_forward(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets, const Bias& bias,
                  std::int64_t ignore_index, Wanted wanted) {
  static const auto forward = c10::Dispatcher::singleton()
                                  .findSchemaOrThrow("tessera::_linear_cross_entropy", "")
                                  .typed<decltype(forward_on_device)>();
  return forward.call(hidden, weight, targets, bias, ignore_index, wanted);
}

// The bias comes last: where there is none, needs_input_grad does not count it.
class SummedCrossEntropy : public torch::autograd::Function<SummedCrossEntropy> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, const at::Tensor& hidden,
                                                const at::Tensor& weight, const at::Tensor& targets, const Bias& bias,
                                                std::int64_t ignore_index, Wanted wanted) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto [loss, grad_hidden, grad_weight, grad_bias] =
        call_forward(hidden, weight, targets, bias, ignore_index, wanted);
    ctx->save_for_backward({grad_hidden, grad_weight, grad_bias});
    ctx->saved_data["type"] = hidden.scalar_type();
    return {loss};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "linear_cross_entropy has no second derivatives");
    const auto saved = ctx->get_saved_variables();
    const at::ScalarType type = ctx->saved_data["type"].toScalarType();
    // Not in place: a graph that is retained passes here again.
    const auto scaled = [&](std::size_t input, const at::Tensor& gradient) {
      return gradient.defined() && ctx->needs_input_grad(input) ? gradient * gradients[0] : at::Tensor();
    };
    const auto narrowed = [&](const at::Tensor& gradient) { return gradient.defined() ? gradient.to(type) : gradient; };
    return {narrowed(scaled(0, saved[0])), narrowed(scaled(1, saved[1])), {}, scaled(3, saved[2]), {}, {}};
  }
};

bool wants_gradient(const at::Tensor& tensor) {
  return at::GradMode::is_enabled() && tensor.requires_grad();
}

// A compiled graph calls the forward pass without autograd and keeps the gradients for its own backward pass.
Four forward_with_gradient(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                           const Bias& bias, std::int64_t ignore_index, Wanted wanted) {
  if (wants_gradient(hidden) || wants_gradient(weight) || (bias && wants_gradient(*bias)))
    return {SummedCrossEntropy::apply(hidden, weight, targets, bias, ignore_index, wanted)[0], {}, {}, {}};
  const at::AutoDispatchBelowADInplaceOrView below;
  return call_forward(hidden, weight, targets, bias, ignore_index, wanted);
}

at::Tensor operate(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets, const Bias& bias,
                   std::int64_t ignore_index, c10::string_view reduction) {
  check(hidden, weight, targets, bias);
  TORCH_CHECK(reduction == "mean" || reduction == "sum", "linear_cross_entropy: reduction must be mean or sum, got ",
              reduction);
  const at::ScalarType type = has_kernel(hidden) ? hidden.scalar_type() : compute_dtype(hidden);
  const at::Tensor sum = std::get<0>(
      call_forward(hidden.to(type), weight.to(type), targets, bias ? Bias(bias->to(type)) : Bias(), ignore_index,
                   {wants_gradient(hidden), wants_gradient(weight), bias && wants_gradient(*bias)}));
  return reduction == "sum" ? sum : sum / targets.ne(ignore_index).sum().clamp_min(1);
}

// Of autocast's types a GPU multiplies bfloat16; the CPU gains nothing by rounding.
at::Tensor operate_under_autocast(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                                  const Bias& bias, std::int64_t ignore_index, c10::string_view reduction) {
  const at::DeviceType device = hidden.device().type();
  const at::ScalarType wide = at::promote_types(compute_dtype(hidden), compute_dtype(weight));
  const bool narrow = hidden.is_cuda() && at::autocast::is_autocast_enabled(device) &&
                      at::autocast::get_autocast_dtype(device) == at::kBFloat16 && wide == at::kFloat;
  const at::ScalarType type = narrow ? at::kBFloat16 : wide;
  const NoAutocast no_autocast;
  return operate(hidden.to(type), weight.to(type), targets, bias, ignore_index, reduction);
}

}  // namespace

void define_linear_cross_entropy(torch::Library& library) {
  library.def(
      "linear_cross_entropy(Tensor hidden, Tensor weight, Tensor targets, Tensor? bias=None, *, int ignore_index=-100, "
      "str reduction='mean') -> Tensor",
      {at::Tag::pt2_compliant_tag});
  library.def(
      "_linear_cross_entropy(Tensor hidden, Tensor weight, Tensor targets, Tensor? bias, int ignore_index, bool[3] "
      "output_mask) -> (Tensor loss, Tensor grad_hidden, Tensor grad_weight, Tensor grad_bias)",
      {at::Tag::pt2_compliant_tag});
  library.impl("linear_cross_entropy", torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(operate)));
  for (const c10::DispatchKey device : {c10::DispatchKey::AutocastCPU, c10::DispatchKey::AutocastCUDA})
    library.impl("linear_cross_entropy", torch::dispatch(device, TORCH_FN(operate_under_autocast)));
  for (const c10::DispatchKey device : {c10::DispatchKey::CPU, c10::DispatchKey::CUDA})
    library.impl("_linear_cross_entropy", torch::dispatch(device, TORCH_FN(forward_on_device)));
  library.impl("_linear_cross_entropy", torch::dispatch(c10::DispatchKey::Meta, TORCH_FN(forward_on_meta)));
  library.impl("_linear_cross_entropy", torch::dispatch(c10::DispatchKey::Autograd, TORCH_FN(forward_with_gradient)));
}

at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                                std::int64_t ignore_index, const at::Tensor& bias, at::Reduction::Reduction reduction) {
  TORCH_CHECK(reduction == at::Reduction::Mean || reduction == at::Reduction::Sum,
              "linear_cross_entropy: reduction must be Mean or Sum");
  register_operators();
  static const auto operation =
      c10::Dispatcher::singleton().findSchemaOrThrow("tessera::linear_cross_entropy", "").typed<decltype(operate)>();
  return operation.call(hidden, weight, targets, bias.defined() ? Bias(bias) : std::nullopt, ignore_index,
                        reduction == at::Reduction::Sum ? "sum" : "mean");
}

}  // namespace tessera
