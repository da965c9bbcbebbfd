#include "kernels/linear_cross_entropy/linear_cross_entropy.h"

#include <algorithm>
#include <array>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "src/ops/dispatch.h"
#include "src/ops/kernel_call.h"
#include "src/ops/operators.h"
#include <tessera/ops/linear_cross_entropy.h>
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {
namespace linear_cross_entropy_parts {

using Optional = std::optional<at::Tensor>;
using Wanted = std::array<bool, 3>;  // which of the gradients of hidden, weight and bias are needed
using Four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

constexpr std::int64_t kTileElements = 16 << 20;      // logits in one tile on the CPU
constexpr std::int64_t kTileBytesOnGpu = 512 << 20;  // few large tiles: products with few rows leave most of a GPU idle
constexpr std::int64_t kRowsTogetherOnGpu = 256;     // a tile of several such groups fills the products' own tiles

const char* name_of(const Optional& target_weights) {
  return target_weights ? "linear_soft_cross_entropy" : "linear_cross_entropy";
}

// Checks the arguments, using only sym_size(), so that tracing with symbolic sizes works. targets: ids [T], or [T, n] if there are
// target_weights [T, n].
void check(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets, const Optional& bias,
           const Optional& target_weights) {
  const char* const name = name_of(target_weights);
  TORCH_CHECK(hidden.dim() == 2 && hidden.sym_size(1) > 0 && hidden.is_floating_point(), name,
              ": hidden must be floating [T, D] with D at least 1, got ", hidden.scalar_type(), " ",
              hidden.sym_sizes());
  TORCH_CHECK(weight.dim() == 2 && weight.sym_size(0) > 0 && weight.sym_size(1) == hidden.sym_size(1) &&
                  weight.scalar_type() == hidden.scalar_type(),
              name, ": weight must be ", hidden.scalar_type(), " [V, D] = [V, ", hidden.sym_size(1),
              "] as hidden is, got ", weight.scalar_type(), " ", weight.sym_sizes());
  if (target_weights) {
    TORCH_CHECK(targets.dim() == 2 && targets.sym_size(0) == hidden.sym_size(0) && targets.sym_size(1) > 0 &&
                    targets.scalar_type() == at::kLong,
                name, ": ids must be int64 [T, n] = [", hidden.sym_size(0), ", n] with n at least 1, got ",
                targets.scalar_type(), " ", targets.sym_sizes());
    TORCH_CHECK(target_weights->sym_sizes() == targets.sym_sizes() && target_weights->is_floating_point(), name,
                ": id_weights must be floating ", targets.sym_sizes(), " as ids is, got ",
                target_weights->scalar_type(), " ", target_weights->sym_sizes());
  } else {
    TORCH_CHECK(targets.dim() == 1 && targets.sym_size(0) == hidden.sym_size(0) && targets.scalar_type() == at::kLong,
                name, ": targets must be int64 [T] = [", hidden.sym_size(0), "], got ", targets.scalar_type(), " ",
                targets.sym_sizes());
  }
  TORCH_CHECK(!bias || (bias->dim() == 1 && bias->sym_size(0) == weight.sym_size(0) && bias->is_floating_point()),
              name, ": bias must be floating [V] = [", weight.sym_size(0), "], got ", bias->scalar_type(), " ",
              bias->sym_sizes());
  TORCH_CHECK(weight.device() == hidden.device() && targets.device() == hidden.device() &&
                  (!bias || bias->device() == hidden.device()) &&
                  (!target_weights || target_weights->device() == hidden.device()),
              name, ": hidden, weight, targets and bias must be on one device, got ", hidden.device(), ", ",
              weight.device(), ", ", targets.device(), " and ", bias ? bias->device() : hidden.device());
}

// The sparse targets of all rows: ids [T, n], with equal ids adjacent. An unused entry has the id -1.
struct Target {
  at::Tensor ids;
  at::Tensor weights;  // [T, n], in the type of the losses; undefined if all are 1

  at::Tensor rows() const { return ids.ge(0).any(1); }  // [T], true for rows that have a target
  Target narrow(std::int64_t first, std::int64_t count) const {
    return {ids.narrow(0, first, count), weights.defined() ? weights.narrow(0, first, count) : weights};
  }
};

// Reports an id that is out of range. On a GPU the message does not contain the id, because reading it would mean
// waiting for the device.
template <class Message>
void refuse(const at::Tensor& bad, const char* on_gpu, const Message& message) {
  if (!bad.is_cpu())
    at::_assert_async(bad.any().logical_not(), on_gpu);
  else if (bad.any().item<bool>())
    message(bad.nonzero()[0]);
}

// Throws if an id is neither in [0, vocabulary) nor ignore_index.
Target hard_target(const at::Tensor& targets, std::int64_t vocabulary, std::int64_t ignore_index) {
  const at::Tensor ignored = targets == ignore_index;
  refuse(targets.lt(0).logical_or_(targets >= vocabulary).logical_and_(ignored.logical_not()),
         "linear_cross_entropy: a target is neither a row of weight nor ignore_index", [&](const at::Tensor& at) {
           const std::int64_t place = at[0].item<std::int64_t>();
           TORCH_CHECK(false, "linear_cross_entropy: targets[", place, "] is ", targets[place].item<std::int64_t>(),
                       ", but must be in [0, ", vocabulary, ") or ignore_index = ", ignore_index);
         });
  return {targets.masked_fill(ignored, -1).unsqueeze(1), {}};
}

// Throws if an id is outside [0, vocabulary), except where the target's weight is 0; such entries may have any id.
Target soft_target(const at::Tensor& ids, const at::Tensor& weights, std::int64_t vocabulary, at::ScalarType type) {
  const at::Tensor unused = weights == 0;
  refuse(ids.lt(0).logical_or_(ids >= vocabulary).logical_and_(unused.logical_not()),
         "linear_soft_cross_entropy: an id whose weight is not 0 is not a row of weight", [&](const at::Tensor& at) {
           const std::int64_t row = at[0].item<std::int64_t>(), place = at[1].item<std::int64_t>();
           TORCH_CHECK(false, "linear_soft_cross_entropy: ids[", row, ", ", place, "] is ",
                       ids[row][place].item<std::int64_t>(), ", but must be in [0, ", vocabulary,
                       ") where its weight is not 0");
         });
  const auto [sorted, order] = ids.masked_fill(unused, -1).sort(/*stable=*/true, 1, /*descending=*/false);
  return {sorted.contiguous(), weights.gather(1, order).to(type)};
}

// Computes `to = a b`, or `to += a b` if `add` is true. On a GPU, `to` may be float32 when a and b are bfloat16.
void multiply(at::Tensor to, const at::Tensor& a, const at::Tensor& b, bool add) {
  if (a.scalar_type() == to.scalar_type())
    at::addmm_out(to, to, a, b, /*beta=*/add ? 1 : 0);
  else
    at::addmm_out(to, to, a, b, to.scalar_type(), /*beta=*/add ? 1 : 0);
}

// Computes a tile's losses with tensor operations. With `gradient`, also overwrites the logits with their gradient.
void finish_tile_in_place(at::Tensor logits, const Target& target, const at::Tensor& losses, bool gradient) {
  const at::Tensor unused = target.ids.lt(0), place = target.ids.clamp_min(0), ignored = target.rows().logical_not();
  const at::Tensor weights = (target.weights.defined() ? target.weights : at::ones_like(place, logits.options()))
                                 .masked_fill(unused, 0);                                // [rows, n]
  const at::Tensor total = weights.sum(1, /*keepdim=*/true);                              // [rows, 1]
  const at::Tensor normalizer = logits.logsumexp(1, /*keepdim=*/true);                    // [rows, 1]
  const at::Tensor of_target = (weights * logits.gather(1, place).masked_fill_(unused, 0)).sum(1, /*keepdim=*/true);
  losses.copy_((total * normalizer - of_target).squeeze(1).masked_fill_(ignored, 0));
  if (!gradient) return;
  logits.sub_(normalizer).exp_().mul_(total);
  logits.scatter_add_(1, place, weights.neg());
  logits.masked_fill_(ignored.unsqueeze(1), 0);
}

// Writes the losses [rows] of logits [rows, V]. With `gradient`, also overwrites the logits with their gradient.
void finish_tile(const at::Tensor& logits, const Target& target, const at::Tensor& losses, bool gradient) {
  if (!has_kernels_for_type(logits)) return finish_tile_in_place(logits, target, losses, gradient);
  kernels::CrossEntropyTile call;
  call.rows = logits.size(0);
  call.columns = logits.size(1);
  call.pitch = logits.stride(0);
  call.logits = logits.const_data_ptr();
  call.type = kernel_type(logits);
  call.targets = target.ids.const_data_ptr<std::int64_t>();
  call.places = target.ids.size(1);
  if (target.weights.defined()) call.weights = target.weights.const_data_ptr<float>();
  call.losses = losses.mutable_data_ptr<float>();
  if (gradient) call.gradient = logits.mutable_data_ptr();
  check_status(logits.is_cpu() ? kernels::cpu::cross_entropy_tile(call, torch_threads())
                               : kernels::cuda::cross_entropy_tile(call, current_stream(logits)));
}

// Returns memory for a tile of whole rows of logits [rows, V]. On a GPU, the rows are padded to a multiple of 16 bytes, so that products and
// kernels can read and write 16 bytes at a time.
at::Tensor make_tile(std::int64_t rows, std::int64_t vocabulary, std::optional<std::int64_t> elements, const at::TensorOptions& options) {
  if (!options.device().is_cuda()) {
    const std::int64_t most = std::max<std::int64_t>(1, elements.value_or(kTileElements) / vocabulary);
    return at::empty({std::min(rows, most), vocabulary}, options);
  }
  const auto bytes = static_cast<std::int64_t>(options.dtype().itemsize());
  const std::int64_t step = 16 / bytes, pitch = (vocabulary + step - 1) / step * step;
  std::int64_t most = elements.value_or(kTileBytesOnGpu / bytes) / pitch;
  if (!elements && most > kRowsTogetherOnGpu) most = most / kRowsTogetherOnGpu * kRowsTogetherOnGpu;
  return at::empty({std::min(rows, std::max<std::int64_t>(1, most)), pitch}, options).narrow(1, 0, vocabulary);
}

// The rows that take part in products, with their targets.
struct Rows {
  at::Tensor x;
  Target target;
  at::Tensor places;  // the rows' indices in hidden; undefined if all rows take part
};

// On the CPU, ignored rows are left out of the products. On a GPU, the host would have to wait to learn their number,
// so ignored rows are set to zero and multiplied.
Rows rows_of(const at::Tensor& hidden, const Target& target) {
  if (!hidden.is_cpu()) return {hidden.masked_fill(target.rows().logical_not().unsqueeze(1), 0), target, {}};
  const at::Tensor places = target.rows().nonzero().squeeze(1);
  const auto chosen = [&](const at::Tensor& rows) { return rows.defined() ? rows.index_select(0, places) : rows; };
  return {chosen(hidden), {chosen(target.ids), chosen(target.weights)}, places};
}

// Returns the sum of all losses, and its gradients with respect to hidden, weight and bias. Gradients that are not
// needed are undefined.
Four forward_on_device(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets, const Optional& bias,
                       std::int64_t ignore_index, Wanted wanted, const Optional& target_weights,
                       std::optional<std::int64_t> tile_elements) {
  check(hidden, weight, targets, bias, target_weights);
  const c10::OptionalDeviceGuard device(hidden.device());
  const std::int64_t vocabulary = weight.size(0);
  const Rows rows =
      rows_of(hidden, target_weights ? soft_target(targets, *target_weights, vocabulary, compute_dtype(hidden))
                                     : hard_target(targets, vocabulary, ignore_index));
  const at::TensorOptions numbers = hidden.options().dtype(compute_dtype(hidden));
  // The logits have hidden's type, as in a linear layer, so that the gradient can overwrite them and take part in products.
  const at::Tensor tile = make_tile(rows.x.size(0), vocabulary, tile_elements, hidden.options());
  const std::int64_t count = rows.x.size(0), most = tile.size(0);
  const bool gradient = wanted[0] || wanted[1] || wanted[2];
  const at::Tensor losses = at::empty({count}, numbers);
  at::Tensor grad_hidden, grad_weight, grad_bias;
  if (wanted[0]) grad_hidden = at::empty(rows.x.sizes(), numbers);
  if (wanted[1]) grad_weight = at::zeros(weight.sizes(), numbers);
  if (wanted[2]) grad_bias = at::zeros({vocabulary}, numbers);
  for (std::int64_t first = 0; first < count; first += most) {
    const std::int64_t height = std::min(most, count - first);
    const at::Tensor x = rows.x.narrow(0, first, height), logits = tile.narrow(0, 0, height);
    multiply(logits, x, weight.t(), /*add=*/false);
    if (bias) logits.add_(*bias);
    finish_tile(logits, rows.target.narrow(first, height), losses.narrow(0, first, height), gradient);
    if (wanted[0]) multiply(grad_hidden.narrow(0, first, height), logits, weight, /*add=*/false);
    if (wanted[1]) multiply(grad_weight, logits.t(), x, /*add=*/true);
    if (wanted[2]) grad_bias.add_(logits.sum(0, /*keepdim=*/false, grad_bias.scalar_type()));
  }
  if (wanted[0] && rows.places.defined())
    grad_hidden = at::zeros(hidden.sizes(), numbers).index_copy_(0, rows.places, grad_hidden);
  return {losses.sum(), grad_hidden, grad_weight, grad_bias};
}

Four forward_on_meta(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets, const Optional& bias,
                     std::int64_t, Wanted wanted, const Optional& target_weights, std::optional<std::int64_t>) {
  check(hidden, weight, targets, bias, target_weights);
  const at::TensorOptions options = hidden.options().dtype(compute_dtype(hidden));
  const auto like = [&](bool is_wanted, const at::Tensor& tensor) {
    return is_wanted ? at::empty_symint(tensor.sym_sizes(), options) : at::Tensor();
  };
  return {at::empty({}, options), like(wanted[0], hidden), like(wanted[1], weight),
          wanted[2] ? at::empty_symint({weight.sym_size(0)}, options) : at::Tensor()};
}

Four call_forward(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets, const Optional& bias,
                  std::int64_t ignore_index, Wanted wanted, const Optional& target_weights,
                  std::optional<std::int64_t> tile_elements) {
  static const auto forward = operation<decltype(forward_on_device)>("tessera::_linear_cross_entropy");
  return forward.call(hidden, weight, targets, bias, ignore_index, wanted, target_weights, tile_elements);
}

// needs_input_grad() does not count an undefined bias, so without a bias the indices of later inputs shift. Therefore the bias comes after
// all other inputs that may need a gradient. The target weights never need a gradient.
class SummedCrossEntropy : public torch::autograd::Function<SummedCrossEntropy> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, const at::Tensor& hidden,
                                                const at::Tensor& weight, const at::Tensor& targets,
                                                const Optional& bias, std::int64_t ignore_index, Wanted wanted,
                                                const Optional& target_weights,
                                                std::optional<std::int64_t> tile_elements) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto [loss, grad_hidden, grad_weight, grad_bias] =
        call_forward(hidden, weight, targets, bias, ignore_index, wanted, target_weights, tile_elements);
    ctx->save_for_backward({grad_hidden, grad_weight, grad_bias});
    ctx->saved_data["type"] = hidden.scalar_type();
    return {loss};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "linear_cross_entropy has no second derivatives");
    const auto saved = ctx->get_saved_variables();
    const at::ScalarType type = ctx->saved_data["type"].toScalarType();
    // Not in place, because a retained graph may use the gradient again.
    const auto scaled = [&](std::size_t input, const at::Tensor& gradient) {
      return gradient.defined() && ctx->needs_input_grad(input) ? gradient * gradients[0] : at::Tensor();
    };
    const auto narrowed = [&](const at::Tensor& gradient) { return gradient.defined() ? gradient.to(type) : gradient; };
    return {narrowed(scaled(0, saved[0])), narrowed(scaled(1, saved[1])), {}, scaled(3, saved[2]), {}, {}, {}, {}};
  }
};

bool wants_gradient(const at::Tensor& tensor) {
  return at::GradMode::is_enabled() && tensor.requires_grad();
}

// Compiled graphs call this function without autograd. In that case the function returns the loss and the gradients, which the graph keeps
// for its own backward pass.
Four forward_with_gradient(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                           const Optional& bias, std::int64_t ignore_index, Wanted wanted,
                           const Optional& target_weights, std::optional<std::int64_t> tile_elements) {
  if (wants_gradient(hidden) || wants_gradient(weight) || (bias && wants_gradient(*bias)))
    return {SummedCrossEntropy::apply(hidden, weight, targets, bias, ignore_index, wanted, target_weights,
                                      tile_elements)[0],
            {},
            {},
            {}};
  const at::AutoDispatchBelowADInplaceOrView below;
  return call_forward(hidden, weight, targets, bias, ignore_index, wanted, target_weights, tile_elements);
}

void check_reduction(const Optional& target_weights, c10::string_view reduction) {
  TORCH_CHECK(reduction == "mean" || reduction == "sum", name_of(target_weights),
              ": reduction must be mean or sum, got ", reduction);
}

// Returns the sum of all losses.
at::Tensor summed(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets, const Optional& bias,
                  std::int64_t ignore_index, const Optional& target_weights,
                  std::optional<std::int64_t> tile_elements) {
  check(hidden, weight, targets, bias, target_weights);
  const at::ScalarType type = has_kernels_for_type(hidden) ? hidden.scalar_type() : compute_dtype(hidden);
  return std::get<0>(call_forward(
      hidden.to(type), weight.to(type), targets, bias ? Optional(bias->to(type)) : Optional(), ignore_index,
      {wants_gradient(hidden), wants_gradient(weight), bias && wants_gradient(*bias)},
      target_weights ? Optional(target_weights->detach()) : Optional(), tile_elements));
}

at::Tensor operate(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets, const Optional& bias,
                   std::int64_t ignore_index, c10::string_view reduction) {
  check_reduction({}, reduction);
  const at::Tensor sum = summed(hidden, weight, targets, bias, ignore_index, {}, {});
  return reduction == "sum" ? sum : sum / targets.ne(ignore_index).sum().clamp_min(1);
}

at::Tensor operate_soft(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& ids,
                        const at::Tensor& id_weights, const Optional& bias, c10::string_view reduction,
                        std::optional<std::int64_t> tile) {
  check_reduction(id_weights, reduction);
  TORCH_CHECK(!tile || *tile > 0, "linear_soft_cross_entropy: tile must be at least 1, got ", tile.value_or(0));
  const at::Tensor sum = summed(hidden, weight, ids, bias, -1, id_weights, tile);
  return reduction == "sum" ? sum : sum / at::Scalar(hidden.sym_size(0).max(1));
}

// Returns the type to compute in. Under autocast to bfloat16, this is bfloat16 on a GPU, but not on the CPU, where rounding would bring no
// benefit. Other types of autocast are ignored.
at::ScalarType type_under_autocast(const at::Tensor& hidden, const at::Tensor& weight) {
  const at::DeviceType device = hidden.device().type();
  const at::ScalarType wide = at::promote_types(compute_dtype(hidden), compute_dtype(weight));
  const bool narrow = hidden.is_cuda() && at::autocast::is_autocast_enabled(device) &&
                      at::autocast::get_autocast_dtype(device) == at::kBFloat16 && wide == at::kFloat;
  return narrow ? at::kBFloat16 : wide;
}

at::Tensor operate_under_autocast(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                                  const Optional& bias, std::int64_t ignore_index, c10::string_view reduction) {
  const at::ScalarType type = type_under_autocast(hidden, weight);
  const NoAutocast no_autocast;
  return operate(hidden.to(type), weight.to(type), targets, bias, ignore_index, reduction);
}

at::Tensor operate_soft_under_autocast(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& ids,
                                       const at::Tensor& id_weights, const Optional& bias, c10::string_view reduction,
                                       std::optional<std::int64_t> tile) {
  const at::ScalarType type = type_under_autocast(hidden, weight);
  const NoAutocast no_autocast;
  return operate_soft(hidden.to(type), weight.to(type), ids, id_weights, bias, reduction, tile);
}

Optional optional_of(const at::Tensor& tensor) {
  return tensor.defined() ? Optional(tensor) : std::nullopt;
}

c10::string_view name_of(at::Reduction::Reduction reduction) {
  TORCH_CHECK(reduction == at::Reduction::Mean || reduction == at::Reduction::Sum,
              "linear_cross_entropy: reduction must be Mean or Sum");
  return reduction == at::Reduction::Sum ? "sum" : "mean";
}

}  // namespace linear_cross_entropy_parts
}  // namespace

void define_linear_cross_entropy(torch::Library& library) {
  using namespace linear_cross_entropy_parts;
  library.def(
      "linear_cross_entropy(Tensor hidden, Tensor weight, Tensor targets, Tensor? bias=None, *, int ignore_index=-100, "
      "str reduction='mean') -> Tensor",
      {at::Tag::pt2_compliant_tag});
  library.def(
      "linear_soft_cross_entropy(Tensor hidden, Tensor weight, Tensor ids, Tensor id_weights, Tensor? bias=None, *, str "
      "reduction='mean', int? tile=None) -> Tensor",
      {at::Tag::pt2_compliant_tag});
  library.def(
      "_linear_cross_entropy(Tensor hidden, Tensor weight, Tensor targets, Tensor? bias, int ignore_index, bool[3] "
      "output_mask, Tensor? target_weights=None, int? tile=None) -> (Tensor loss, Tensor grad_hidden, Tensor grad_weight, Tensor grad_bias)",
      {at::Tag::pt2_compliant_tag});
  implement<operate, operate_under_autocast>(library, "linear_cross_entropy");
  implement<operate_soft, operate_soft_under_autocast>(library, "linear_soft_cross_entropy");
  for (const c10::DispatchKey device : {c10::DispatchKey::CPU, c10::DispatchKey::CUDA})
    library.impl("_linear_cross_entropy", torch::dispatch(device, TORCH_FN(forward_on_device)));
  library.impl("_linear_cross_entropy", torch::dispatch(c10::DispatchKey::Meta, TORCH_FN(forward_on_meta)));
  library.impl("_linear_cross_entropy", torch::dispatch(c10::DispatchKey::Autograd, TORCH_FN(forward_with_gradient)));
}

at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                                std::int64_t ignore_index, const at::Tensor& bias, at::Reduction::Reduction reduction) {
  using namespace linear_cross_entropy_parts;
  register_operators();
  static const auto registered = operation<decltype(operate)>("tessera::linear_cross_entropy");
  return registered.call(hidden, weight, targets, optional_of(bias), ignore_index, name_of(reduction));
}

at::Tensor linear_soft_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& ids,
                                     const at::Tensor& id_weights, const at::Tensor& bias,
                                     at::Reduction::Reduction reduction, std::optional<std::int64_t> tile) {
  using namespace linear_cross_entropy_parts;
  register_operators();
  static const auto registered = operation<decltype(operate_soft)>("tessera::linear_soft_cross_entropy");
  return registered.call(hidden, weight, ids, id_weights, optional_of(bias), name_of(reduction), tile);
}

}  // namespace tessera
