#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "src/base/recomputing.h"
#include <tessera/ops/activation_checkpoint.h>
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {

struct Body : torch::CustomClassHolder {
  explicit Body(TileBody f) : function(std::move(f)) {}
  TileBody function;
};

class Checkpoint : public torch::autograd::Function<Checkpoint> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, at::TensorList inputs, const TileBody& body) {
    const NoAutocast no_autocast;
    const std::vector<at::Tensor> tensors = inputs.vec();
    ctx->save_for_backward(tensors);
    ctx->saved_data["body"] = at::IValue::make_capsule(c10::make_intrusive<Body>(body));
    return body(tensors);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "checkpointed tiles have no second derivatives");
    const auto body = c10::static_intrusive_pointer_cast<Body>(ctx->saved_data["body"].toCapsule());
    std::vector<at::Tensor> inputs, leaves;
    for (const at::Tensor& saved : ctx->get_saved_variables()) {
      inputs.push_back(saved.detach().requires_grad_(saved.requires_grad()));
      if (saved.requires_grad()) leaves.push_back(inputs.back());
    }
    at::Tensor output;
    {
      const at::AutoGradMode grad(true);
      const NoAutocast no_autocast;
      const Recomputing again;
      output = body->function(inputs);
    }
    std::vector<at::Tensor> found(leaves.size());
    if (output.requires_grad())
      found = torch::autograd::grad({output}, leaves, {gradients[0]}, std::nullopt, /*create_graph=*/false,
                                    /*allow_unused=*/true);
    torch::autograd::variable_list out;
    std::size_t next = 0;
    for (const at::Tensor& input : inputs) out.push_back(input.requires_grad() ? found[next++] : at::Tensor());
    out.emplace_back();  // the argument `body` has no gradient
    return out;
  }
};

// The autocast state at the time this object is created.
class AutocastState {
 public:
  explicit AutocastState(at::DeviceType device)
      : device_(device),
        enabled_(at::autocast::is_autocast_enabled(device)),
        dtype_(at::autocast::get_autocast_dtype(device)) {}

  // Runs `body` under the captured state. Turns off the cache of casts, because its entries would outlive the graph of
  // the recomputation.
  std::vector<at::Tensor> run(const std::function<std::vector<at::Tensor>()>& body) const {
    const AutocastState before(device_);
    const bool cache = at::autocast::is_autocast_cache_enabled();
    at::autocast::set_autocast_cache_enabled(false);
    apply();
    std::vector<at::Tensor> out = body();
    before.apply();
    at::autocast::set_autocast_cache_enabled(cache);
    return out;
  }

 private:
  void apply() const {
    at::autocast::set_autocast_enabled(device_, enabled_);
    at::autocast::set_autocast_dtype(device_, dtype_);
  }

  at::DeviceType device_;
  bool enabled_;
  at::ScalarType dtype_;
};

struct Module : torch::CustomClassHolder {
  Module(TensorsBody f, const at::Tensor& x) : function(std::move(f)), autocast(x.device().type()) {}
  TensorsBody function;
  AutocastState autocast;
};

class Recompute : public torch::autograd::Function<Recompute> {
 public:
  // The parameters are inputs of the function, and thus part of the graph, so that DDP-style searches for unused
  // parameters find them.
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, at::TensorList inputs, at::TensorList parameters,
                                                const c10::intrusive_ptr<Module>& module) {
    std::vector<at::Tensor> saved = inputs.vec();
    saved.insert(saved.end(), parameters.begin(), parameters.end());
    ctx->save_for_backward(saved);
    ctx->saved_data["module"] = at::IValue::make_capsule(module);
    ctx->saved_data["inputs"] = static_cast<std::int64_t>(inputs.size());
    return module->function(inputs.vec());
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "recomputed blocks have no second derivatives");
    const auto module = c10::static_intrusive_pointer_cast<Module>(ctx->saved_data["module"].toCapsule());
    std::vector<at::Tensor> inputs = ctx->get_saved_variables();
    const auto first_parameter = inputs.begin() + ctx->saved_data["inputs"].toInt();
    for (auto input = inputs.begin(); input != first_parameter; ++input) *input = input->detach().requires_grad_(input->requires_grad());
    std::vector<at::Tensor> leaves;
    for (const at::Tensor& input : inputs)
      if (input.requires_grad()) leaves.push_back(input);
    std::vector<at::Tensor> outputs;
    {
      const at::AutoGradMode grad(true);
      const Recomputing again;
      outputs = module->autocast.run([&] { return module->function({inputs.begin(), first_parameter}); });
    }
    const auto found = torch::autograd::grad(outputs, leaves, gradients, std::nullopt, /*create_graph=*/false, /*allow_unused=*/true);
    torch::autograd::variable_list out;
    std::size_t next = 0;
    for (const at::Tensor& input : inputs) out.push_back(input.requires_grad() ? found[next++] : at::Tensor());
    out.emplace_back();  // no gradient for the module
    return out;
  }
};

}  // namespace

std::vector<at::Tensor> recomputed(const TensorsBody& body, const std::vector<at::Tensor>& inputs,
                                   const std::vector<at::Tensor>& parameters) {
  return Recompute::apply(at::TensorList(inputs), at::TensorList(parameters), c10::make_intrusive<Module>(body, inputs.front()));
}

at::Tensor recomputed(const std::function<at::Tensor(const at::Tensor&)>& body, const at::Tensor& x,
                      const std::vector<at::Tensor>& parameters) {
  return recomputed([body](const std::vector<at::Tensor>& inputs) { return std::vector{body(inputs[0])}; }, {x}, parameters)[0];
}

at::Tensor checkpointed(const TileBody& body, const std::vector<at::Tensor>& inputs) {
  return Checkpoint::apply(at::TensorList(inputs), body);
}

at::Tensor map_tiles(const TileBody& body, const std::vector<at::Tensor>& batched,
                     const std::vector<at::Tensor>& shared, std::optional<std::int64_t> chunk, std::int64_t join) {
  const auto with_shared = [&](std::vector<at::Tensor> tile) {
    tile.insert(tile.end(), shared.begin(), shared.end());
    return tile;
  };
  if (!chunk || *chunk >= batched.front().size(0)) return body(with_shared(batched));
  // Uses split() instead of narrow(). The backward pass of split() joins the gradients of the tiles once, but the
  // backward pass of narrow() would pad each tile's gradient to full size.
  std::vector<std::vector<at::Tensor>> tiles((batched.front().size(0) + *chunk - 1) / *chunk);
  for (const at::Tensor& tensor : batched) {
    const std::vector<at::Tensor> slices = tensor.split(*chunk);
    for (std::size_t i = 0; i < tiles.size(); ++i) tiles[i].push_back(slices[i]);
  }
  std::vector<at::Tensor> results;
  for (const std::vector<at::Tensor>& tile : tiles) results.push_back(checkpointed(body, with_shared(tile)));
  return at::cat(results, join);
}

}  // namespace tessera
