#include "src/objectives/pairs/ring_columns.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "src/distributed/saved_group.h"
#include <tessera/distributed/collectives.h>
#include <tessera/distributed/ring.h>
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct ColumnsBody : torch::CustomClassHolder {
  ColumnsBody(TileBody f, at::Tensor m) : function(std::move(f)), mask(std::move(m)) {}
  TileBody function;
  at::Tensor mask;
};

// Packs texts and mask into one tensor [n, numbers], which travels around the ring.
at::Tensor packed(const at::Tensor& texts, const at::Tensor& mask) {
  const at::Tensor flat = texts.detach().flatten(1);
  return mask.defined() ? at::cat({flat, mask.flatten(1).to(flat.scalar_type())}, 1) : flat.clone();
}

// Splits a block that packed() made into its texts and its mask, which get the shapes of the arguments `texts` and `mask`.
std::vector<at::Tensor> unpacked(const at::Tensor& block, const at::Tensor& texts, const at::Tensor& mask) {
  const std::int64_t width = texts.numel() / texts.size(0);
  const at::Tensor features = block.narrow(1, 0, width).reshape(texts.sizes());
  if (!mask.defined()) return {features, mask};
  return {features, block.narrow(1, width, block.size(1) - width).reshape(mask.sizes()) != 0};
}

std::vector<at::Tensor> joined_lists(std::vector<at::Tensor> first, const std::vector<at::Tensor>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

class RingColumns : public torch::autograd::Function<RingColumns> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& texts, at::TensorList own,
                            const c10::intrusive_ptr<ColumnsBody>& body, const ProcessGroup& group) {
    const NoAutocast no_autocast;
    const std::vector<at::Tensor> mine = own.vec();
    std::vector<at::Tensor> columns(static_cast<std::size_t>(group.size()));
    visit_ring(packed(texts, body->mask), {}, group, [&](int owner, const at::Tensor& block, const at::Tensor&) {
      columns[static_cast<std::size_t>(owner)] = body->function(joined_lists(mine, unpacked(block, texts, body->mask)));
    });
    ctx->save_for_backward(joined_lists({texts}, mine));
    ctx->saved_data["body"] = at::IValue::make_capsule(body);
    save_group(ctx, group);
    return at::cat(columns, -1);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "columns made around a ring have no second derivatives");
    const NoAutocast no_autocast;
    const auto body = c10::static_intrusive_pointer_cast<ColumnsBody>(ctx->saved_data["body"].toCapsule());
    const ProcessGroup& group = saved_group(ctx);
    const std::vector<at::Tensor> saved = ctx->get_saved_variables();
    const at::Tensor& texts = saved[0];
    std::vector<at::Tensor> own, leaves, sums;
    for (std::size_t i = 1; i < saved.size(); ++i) {
      own.push_back(saved[i].detach().requires_grad_(saved[i].requires_grad()));
      if (!saved[i].requires_grad()) continue;
      leaves.push_back(own.back());
      sums.push_back(at::zeros_like(saved[i]));
    }
    const std::vector<at::Tensor> parts = gradients[0].split(texts.size(0), -1);
    const auto visit = [&](int owner, const at::Tensor& block, const at::Tensor& text_sums) {
      std::vector<at::Tensor> theirs = unpacked(block, texts, body->mask);
      theirs[0].requires_grad_(true);
      at::Tensor columns;
      {
        const at::AutoGradMode grad(true);
        columns = body->function(joined_lists(own, theirs));
      }
      if (!columns.requires_grad()) return;
      const auto found =
          torch::autograd::grad({columns}, joined_lists(leaves, {theirs[0]}), {parts[static_cast<std::size_t>(owner)]},
                                std::nullopt, /*create_graph=*/false, /*allow_unused=*/true);
      for (std::size_t i = 0; i < sums.size(); ++i)
        if (found[i].defined()) sums[i].add_(found[i]);
      if (found.back().defined()) text_sums.add_(found.back().flatten(1));
    };
    const at::Tensor home =
        visit_ring(packed(texts, body->mask),
                   at::zeros({texts.size(0), texts.numel() / texts.size(0)}, texts.options()), group, visit);
    variable_list out{home.reshape(texts.sizes())};
    std::size_t next = 0;
    for (const at::Tensor& each : own) out.push_back(each.requires_grad() ? sums[next++] : at::Tensor());
    out.insert(out.end(), 2, at::Tensor());  // no gradients for the arguments `body` and `group`
    return out;
  }
};

}  // namespace

at::Tensor ring_columns(const TileBody& body, const std::vector<at::Tensor>& own, const at::Tensor& texts,
                        const at::Tensor& mask, const ProcessGroup& group) {
  return RingColumns::apply(texts, at::TensorList(own), c10::make_intrusive<ColumnsBody>(body, mask), group);
}

at::Tensor map_texts(const TileBody& body, const std::vector<at::Tensor>& own, const std::vector<at::Tensor>& texts,
                     std::optional<std::int64_t> chunk, const ProcessGroup& group) {
  if (!chunk || group.alone()) {
    std::vector<at::Tensor> all;
    for (const at::Tensor& each : texts) all.push_back(gather_rows(each, group));
    return map_tiles(body, all, own, chunk, /*join=*/1);
  }
  const auto block = [body, chunk, given = own.size(), kinds = texts.size()](const std::vector<at::Tensor>& in) {
    const auto middle = in.begin() + static_cast<std::ptrdiff_t>(given);
    return map_tiles(body, {middle, middle + static_cast<std::ptrdiff_t>(kinds)}, {in.begin(), middle}, chunk,
                     /*join=*/1);
  };
  return ring_columns(block, own, texts[0], texts.size() > 1 ? texts[1] : at::Tensor(), group);
}

}  // namespace tessera
