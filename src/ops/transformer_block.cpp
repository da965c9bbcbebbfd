#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include "src/ops/input_edges.h"
#include "src/ops/transformer_block.h"
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {
namespace transformer_block_parts {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The positions of the function's inputs. The parameters of attention follow them.
enum Input : std::size_t {
  kX, kValue, kValueBias, kValueScale,
  kNorm1Weight, kNorm1Bias, kQkvWeight, kQkvBias, kOutWeight, kOutBias, kScale1,
  kNorm2Weight, kNorm2Bias, kGateWeight, kGateBias, kFcWeight, kFcBias, kProjectionWeight,
  kInputs
};

// The bias of the projection is missing, because its gradient is computed where the block's update is added.
std::vector<at::Tensor> inputs_of(const ResidualStream& stream, const BlockParts& p) {
  std::vector<at::Tensor> out = {stream.x, stream.update.value, stream.update.bias, stream.update.column_scale,
                                 p.norm_1.weight, p.norm_1.bias, p.qkv.weight, p.qkv.bias, p.out.weight, p.out.bias, p.scale_1,
                                 p.norm_2.weight, p.norm_2.bias, p.gate.weight, p.gate.bias, p.fc.weight, p.fc.bias, p.projection.weight};
  out.insert(out.end(), p.attention_parameters.begin(), p.attention_parameters.end());
  return out;
}

// What the backward pass needs in addition to the parameters. None of these tensors has a history, except that `attended` is a function of
// `qkv`.
struct Kept {
  NormedSum first, second;
  at::Tensor qkv, attended;
  at::Tensor update;  // of the first part, if it has a LayerScale
  at::Tensor gate, fc, hidden;  // results of the maps, and what the projection takes
};

struct Call : torch::CustomClassHolder {
  Call(const ResidualStream& given, const BlockParts& p)
      : stream(given), parts(p), value_type(type_of_update(given, p)), edges(inputs_of(given, p)), recorded(is_recorded(inputs_of(given, p))) {}

  static at::ScalarType type_of_update(const ResidualStream& stream, const BlockParts& parts) {
    return stream.update.value.defined() ? stream.update.value.scalar_type() : parts.qkv.multiplied().scalar_type();
  }

  ResidualStream stream;
  BlockParts parts;
  at::ScalarType value_type;
  InputEdges edges;
  bool recorded;
  Kept kept;

  // Drops what autograd saves instead, or what the backward pass does not need.
  void drop_inputs() {
    stream = {{}, {{}, {}, {}, stream.update.row_factors}};
    BlockParts rest;
    rest.norm_1.epsilon = parts.norm_1.epsilon;
    rest.norm_2.epsilon = parts.norm_2.epsilon;
    rest.factors_1 = parts.factors_1;
    rest.activation = parts.activation;
    parts = std::move(rest);
  }
};

// Computes the gradients of parameters of maps.
class MapGradients {
 public:
  MapGradients(const AutogradContext& context, const InputEdges& edges, const variable_list& saved, std::vector<at::Tensor>& gradients)
      : context_(context), edges_(edges), saved_(saved), gradients_(gradients) {}

  bool needs(std::size_t input) const { return edges_.needs_gradient(context_, input); }
  bool needs_bias(std::size_t bias) const { return saved_[bias].defined() && needs(bias); }

  /// Stores the gradients of the parameters of y = x weight^T + bias. That of the bias may have been stored before.
  void store(const at::Tensor& gradient, const at::Tensor& x, Input weight, std::optional<Input> bias) const {
    const bool bias_wanted = bias && !gradients_[*bias].defined() && needs_bias(*bias);
    const MapGradient found = parameter_gradient(gradient, x, edges_.type(weight), needs(weight), bias_wanted);
    gradients_[weight] = found.weight;
    if (bias_wanted) gradients_[*bias] = found.bias;
  }

 private:
  const AutogradContext& context_;
  const InputEdges& edges_;
  const variable_list& saved_;
  std::vector<at::Tensor>& gradients_;
};

class Block : public torch::autograd::Function<Block> {
 public:
  static variable_list forward(AutogradContext* ctx, at::TensorList /*inputs*/, const c10::intrusive_ptr<Call>& call) {
    const BlockParts& p = call->parts;
    Kept kept;
    const at::ScalarType type = p.qkv.multiplied().scalar_type();
    const auto recorded = [&](const at::Tensor& tensor) { return call->recorded ? tensor : at::Tensor(); };
    {
      const NoAutocast no_autocast;
      kept.first = add_and_normalize(call->stream, p.norm_1, type);
      kept.qkv = apply_map(kept.first.output, p.qkv, /*by_functional=*/false);
    }
    if (!call->recorded) kept.first = {kept.first.sum, {}, {}, {}};
    if (call->recorded) {
      kept.qkv = kept.qkv.detach().requires_grad_();
      const at::AutoGradMode grad(true);
      kept.attended = p.attention(kept.qkv);
    } else {
      kept.attended = p.attention(std::exchange(kept.qkv, {}));
    }
    const NoAutocast no_autocast;
    kept.update = apply_map(kept.attended.detach(), p.out, /*by_functional=*/true);
    kept.attended = recorded(kept.attended);
    kept.second = add_and_normalize({kept.first.sum, {kept.update, {}, p.scale_1, p.factors_1}}, p.norm_2, type);
    kept.first.sum = recorded(kept.first.sum);
    kept.update = p.scale_1.defined() ? recorded(kept.update) : at::Tensor();
    if (p.gate.weight.defined()) {
      kept.fc = apply_map(kept.second.output, p.fc, /*by_functional=*/true);
      kept.gate = apply_map(kept.second.output, p.gate, /*by_functional=*/true);
    } else {
      at::Tensor x = call->recorded ? kept.second.output : std::exchange(kept.second.output, {});
      ActivatedMap found = map_and_activate(std::move(x), p.fc, /*by_functional=*/true, p.activation);
      kept.fc = std::move(found.before);
      kept.hidden = std::move(found.after);
    }
    if (!call->recorded) kept.second = {kept.second.sum, {}, {}, {}};
    if (kept.gate.defined()) kept.hidden = activate_and_multiply(kept.gate, kept.fc, p.activation);
    kept.fc = recorded(kept.fc);
    const at::Tensor result = apply_map(kept.hidden, p.projection, /*by_functional=*/true), sum = kept.second.sum;
    if (call->recorded) keep(ctx, call, std::move(kept));
    return {sum, result};
  }

  static variable_list backward(AutogradContext* ctx, variable_list given) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "transformer blocks have no second derivatives");
    const NoAutocast no_autocast;
    const auto call = c10::static_intrusive_pointer_cast<Call>(ctx->saved_data["call"].toCapsule());
    const variable_list saved = ctx->get_saved_variables();
    const BlockParts& p = call->parts;
    // Frees what the block has kept as soon as it has been used, unless the graph will be used again.
    const bool again = torch::autograd::get_current_graph_task_keep_graph();
    Kept kept = again ? call->kept : std::exchange(call->kept, {});
    std::vector<at::Tensor> gradients(saved.size());
    const MapGradients maps(*ctx, call->edges, saved, gradients);

    maps.store(given[1], std::exchange(kept.hidden, {}), kProjectionWeight, std::nullopt);
    at::Tensor gradient;
    if (kept.gate.defined()) {
      const bool biases = maps.needs_bias(kGateBias) || maps.needs_bias(kFcBias);
      const ActivationGradient of = activation_gradient(input_gradient(given[1], saved[kProjectionWeight]), std::exchange(kept.gate, {}),
                                                        kept.fc, p.activation, biases);
      gradients[kGateBias] = of.x_bias;
      gradients[kFcBias] = of.factor_bias;
      maps.store(of.factor, kept.second.output, kFcWeight, kFcBias);
      gradient = input_gradient(of.factor, saved[kFcWeight]);
      maps.store(of.x, kept.second.output, kGateWeight, kGateBias);
      gradient = input_gradient(of.x, saved[kGateWeight], gradient);
    } else {
      const ActivationGradient of =
          activated_input_gradient(given[1], saved[kProjectionWeight], kept.fc, p.activation, maps.needs_bias(kFcBias));
      gradients[kFcBias] = of.x_bias;
      maps.store(of.x, kept.second.output, kFcWeight, kFcBias);
      gradient = input_gradient(of.x, saved[kFcWeight]);
    }
    kept.fc.reset();
    kept.second.output.reset();
    NormedSumGradients found = add_and_normalize_backward(
        std::exchange(kept.second, {}), {std::exchange(kept.update, {}), {}, saved[kScale1], p.factors_1}, saved[kOutWeight].scalar_type(),
        {saved[kNorm2Weight], saved[kNorm2Bias], p.norm_2.epsilon}, std::exchange(given[0], {}), std::exchange(gradient, {}),
        {maps.needs(kOutBias), maps.needs(kScale1), maps.needs(kNorm2Weight) || maps.needs(kNorm2Bias)});
    gradients[kOutBias] = found.update_bias;
    gradients[kScale1] = found.column_scale;
    gradients[kNorm2Weight] = found.weight;
    gradients[kNorm2Bias] = found.bias;

    maps.store(found.value, kept.attended.detach(), kOutWeight, std::nullopt);
    gradient = input_gradient(std::exchange(found.value, {}), saved[kOutWeight]);
    gradient = attention_backward(std::exchange(kept.attended, {}), kept.qkv, std::exchange(gradient, {}), again, maps, saved, gradients);
    kept.qkv.reset();
    maps.store(gradient, std::exchange(kept.first.output, {}), kQkvWeight, kQkvBias);
    gradient = input_gradient(gradient, saved[kQkvWeight]);
    found = add_and_normalize_backward(
        std::exchange(kept.first, {}), {saved[kValue], {}, saved[kValueScale], call->stream.update.row_factors}, call->value_type,
        {saved[kNorm1Weight], saved[kNorm1Bias], p.norm_1.epsilon}, std::exchange(found.x, {}), gradient,
        {maps.needs(kValueBias), maps.needs(kValueScale), maps.needs(kNorm1Weight) || maps.needs(kNorm1Bias)});
    gradients[kX] = found.x;
    gradients[kValue] = found.value;
    gradients[kValueBias] = found.update_bias;
    gradients[kValueScale] = found.column_scale;
    gradients[kNorm1Weight] = found.weight;
    gradients[kNorm1Bias] = found.bias;
    return call->edges.gradients(gradients, 1);
  }

 private:
  static void keep(AutogradContext* ctx, const c10::intrusive_ptr<Call>& call, Kept kept) {
    // An output of the function must not be kept with its history, which contains this function. x may have a history of its own.
    kept.first.sum = kept.first.sum.detach();
    kept.second.sum = kept.second.sum.detach();
    std::vector<at::Tensor> saved = inputs_of(call->stream, call->parts);
    saved[kX].reset();
    saved[kValueBias].reset();
    if (!saved[kValueScale].defined()) saved[kValue].reset();
    const BlockParts& p = call->parts;
    using Map = std::pair<Input, const MapParameters*>;
    for (const auto& [place, map] : std::initializer_list<Map>{{kQkvWeight, &p.qkv}, {kOutWeight, &p.out}, {kGateWeight, &p.gate},
                                                               {kFcWeight, &p.fc}, {kProjectionWeight, &p.projection}})
      saved[place] = map->multiplied();
    ctx->save_for_backward(std::move(saved));
    call->kept = std::move(kept);
    call->drop_inputs();
    ctx->saved_data["call"] = at::IValue::make_capsule(call);
  }

  // Returns the gradient of qkv, and stores those of the parameters that attention uses.
  static at::Tensor attention_backward(const at::Tensor& attended, const at::Tensor& qkv, const at::Tensor& gradient, bool again,
                                       const MapGradients& maps, const variable_list& saved, std::vector<at::Tensor>& gradients) {
    variable_list leaves = {qkv};
    std::vector<std::size_t> places;
    for (std::size_t i = kInputs; i < saved.size(); ++i) {
      if (!maps.needs(i)) continue;
      leaves.push_back(saved[i]);
      places.push_back(i);
    }
    const variable_list found = torch::autograd::grad({attended}, leaves, {gradient}, again, /*create_graph=*/false, /*allow_unused=*/true);
    for (std::size_t i = 0; i < places.size(); ++i) gradients[places[i]] = found[i + 1];
    return found[0];
  }
};

}  // namespace transformer_block_parts
}  // namespace

ResidualStream transformer_block(const ResidualStream& stream, const BlockParts& parts) {
  using namespace transformer_block_parts;
  const auto call = c10::make_intrusive<Call>(stream, parts);
  const std::vector<at::Tensor> inputs = defined_ones(inputs_of(stream, parts));
  const variable_list out = Block::apply(at::TensorList(inputs), call);
  return {out[0], {out[1], parts.projection.bias, parts.scale_2, parts.factors_2}};
}

}  // namespace tessera
