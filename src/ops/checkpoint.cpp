#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tessera/ops/checkpoint.h>
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
      output = body->function(inputs);
    }
    std::vector<at::Tensor> found(leaves.size());
    if (output.requires_grad())
      found = torch::autograd::grad({output}, leaves, {gradients[0]}, std::nullopt, /*create_graph=*/false,
                                    /*allow_unused=*/true);
    torch::autograd::variable_list out;
    std::size_t next = 0;
    for (const at::Tensor& input : inputs) out.push_back(input.requires_grad() ? found[next++] : at::Tensor());
    out.emplace_back();  // the body
    return out;
  }
};

}  // namespace

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
  // split, not narrow: its backward joins the tiles' gradients once instead of padding each to full size.
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
