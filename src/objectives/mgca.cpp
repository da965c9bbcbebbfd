#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include "src/models/multi_head_attention.h"
#include "src/objectives/add_objective.h"
#include "src/objectives/common/reduction.h"
#include "src/objectives/mgca.h"
#include "src/objectives/pairs/contrast.h"
#include "src/objectives/pairs/pair_objective.h"
#include "src/ops/token_contrast.h"
#include <tessera/ops/activation_checkpoint.h>

namespace tessera {
namespace {

struct MgcaSettings {
  ContrastSettings pairs;
  std::optional<std::int64_t> embed_dim;
  std::int64_t num_prototypes = 500;
  std::string cross_attention = "projected";
  std::int64_t attention_dim = 128;
  std::int64_t attention_heads = 1;
  std::optional<double> local_temperature;
  std::optional<double> prototype_temperature = 0.2;
  double sinkhorn_epsilon = 0.05;
  std::int64_t sinkhorn_iterations = 3;
  double global_weight = 1.0;
  double local_weight = 1.0;
  double prototype_weight = 1.0;
};

void fields(auto& v, MgcaSettings& s) {
  fields(v, s.pairs);
  v("embed_dim", s.embed_dim, "width of the embeddings; null: the model's", config::at_least(1));
  v("num_prototypes", s.num_prototypes, "number of prototypes, K", config::at_least(1));
  v("cross_attention", s.cross_attention, "how tokens attend to the other modality; projected: with learned projections; "
                                          "similarity: by cosine only",
    config::one_of({"projected", "similarity"}));
  v("attention_dim", s.attention_dim, "width of the projected attention", config::at_least(1));
  v("attention_heads", s.attention_heads, "number of heads of the projected attention", config::at_least(1));
  v("local_temperature", s.local_temperature, "temperature of the token-level terms; null: the learned temperature", config::above(0.0));
  v("prototype_temperature", s.prototype_temperature, "temperature of the prototype predictions; null: the learned temperature",
    config::above(0.0));
  v("sinkhorn_epsilon", s.sinkhorn_epsilon, "strength of the entropy regularization of the codes", config::above(0.0));
  v("sinkhorn_iterations", s.sinkhorn_iterations, "number of row and column normalizations", config::in_range(0, config::kMostCount));
  v("global_weight", s.global_weight, "weight of the contrastive loss on global embeddings", config::at_least(0.0));
  v("local_weight", s.local_weight, "weight of the token-level loss", config::at_least(0.0));
  v("prototype_weight", s.prototype_weight, "weight of the prototype loss", config::at_least(0.0));
}

std::optional<config::Problem> validate(const MgcaSettings& s) {
  if (s.attention_dim % s.attention_heads != 0)
    return config::Problem{"attention_heads",
                           concat("must divide attention_dim ", s.attention_dim, ", got ", s.attention_heads)};
  return std::nullopt;
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Attention without projections: returns, for each query, the sum of the context's rows, weighted by the softmax of their scaled cosines
// with the query. The context's rows have unit length.
at::Tensor similarity_attention(const at::Tensor& queries, const at::Tensor& context, const at::Tensor& mask,
                                const at::Tensor& sharpness) {
  at::Tensor logits = at::matmul(queries, context.mT()) * sharpness;
  if (mask.defined()) logits = logits.masked_fill(~mask.unsqueeze(1), lowest(logits.scalar_type()));
  return at::matmul(logits.softmax(-1), context);
}

/// MGCA (Wang et al. 2022) contrasts global embeddings, contrasts each token with what it attends to in the other modality (in both
/// directions), and makes the cluster assignments of image and text agree. Terms `loss_global`, `loss_local`, `loss_local_text`,
/// `loss_local_image`, `loss_prototype`; details `image_codes`, `text_codes` [B, K]. Each forward pass normalizes the prototypes' rows in
/// place.
class Mgca : public PairObjective<MgcaSettings> {
 public:
  Mgca(const MgcaSettings& settings, const ObjectiveContext& context)
      : PairObjective("mgca", {.image_global = true, .text_global = true, .image_tokens = true, .text_tokens = true}, settings, context),
        embed_dim_(settings.embed_dim.value_or(context.embed_dim)) {
    if (settings.global_weight != 0) contrasts_ = {"loss_global"};
    prototypes_ = register_module(
        "prototypes", torch::nn::Linear(torch::nn::LinearOptions(embed_dim_, settings.num_prototypes).bias(false)));
    if (settings.cross_attention == "projected") {
      const MultiHeadAttentionSettings attention{
          .width = embed_dim_, .heads = settings.attention_heads, .inner_width = settings.attention_dim, .linears = true};
      text_attention_ = register_module("text_attention", std::make_shared<MultiHeadAttention>(attention));
      image_attention_ = register_module("image_attention", std::make_shared<MultiHeadAttention>(attention));
    }
  }

  Losses loss(const PairFeatures& pairs, const Features& /*features*/, const StepContext& context) override {
    TORCH_CHECK(pairs.image_global.size(1) == embed_dim_,
                "mgca: image_global must be [B, D] with D = embed_dim = ", embed_dim_, ", got ",
                pairs.image_global.sizes());
    const Contrast global = global_contrast(pairs.image_global, pairs.text_global, scale(pairs.dtype()),
                                            {settings_.pairs.chunk}, context.group, pairs.relation);

    const at::Tensor tokens = unit_rows(pairs.text_tokens);
    const at::Tensor patches = unit_rows(pairs.image_tokens);
    const at::Tensor text_tokens = local_loss(tokens, pairs.text_mask, patches, {}, text_attention_.get());    // [B, L]
    const at::Tensor image_tokens = local_loss(patches, {}, tokens, pairs.text_mask, image_attention_.get());  // [B, P]
    const auto mean_of = [&](const at::Tensor& values) {
      return pairs.relation.mean_of(values.sum(), context.group);
    };
    const at::Tensor local_text = mean_over_sequences(text_tokens, pairs.text_mask, pairs.relation, context.group);
    const at::Tensor empty = ~pairs.text_mask.any(1);
    const at::Tensor local_image = mean_of(image_tokens.mean(1).masked_fill(empty, 0.0));
    const at::Tensor local = (local_text + local_image) / 2;

    // In training, replaces the weight's value without autograd noticing. So gradients are taken with respect to the unit rows, and graphs
    // of earlier forward passes (gradient accumulation) stay valid. Evaluation does not change the weight.
    if (context.training) prototypes_->weight.variable_data().copy_(unit_rows(prototypes_->weight.detach()));
    const at::Tensor prototypes = context.training ? prototypes_->weight : unit_rows(prototypes_->weight);
    const at::Tensor image_scores = at::linear(unit_rows(pairs.image_global), prototypes);  // [B, K]
    const at::Tensor text_scores = at::linear(unit_rows(pairs.text_global), prototypes);
    const auto own_codes = [&](const at::Tensor& scores) {  // Sinkhorn-Knopp needs the scores of all ranks
      const at::Tensor all = context.group.all_gather(scores);
      return sinkhorn_codes(all, settings_.sinkhorn_epsilon, settings_.sinkhorn_iterations, pairs.relation.rows_present)
          .narrow(0, context.group.rank() * scores.size(0), scores.size(0));
    };
    const at::Tensor image_codes = own_codes(image_scores), text_codes = own_codes(text_scores);
    const at::Tensor sharpness = inverse_temperature(settings_.prototype_temperature, pairs.dtype());
    const at::Tensor agreement =
        image_codes * (text_scores * sharpness).log_softmax(1) + text_codes * (image_scores * sharpness).log_softmax(1);
    const at::Tensor prototype = mean_of(agreement.sum(1)) / -2;

    Losses losses{
        settings_.global_weight * global.loss + settings_.local_weight * local + settings_.prototype_weight * prototype,
        {{"loss_global", global.loss},
         {"loss_local", local},
         {"loss_local_text", local_text},
         {"loss_local_image", local_image},
         {"loss_prototype", prototype}},
        {}};
    if (context.inspect) losses.details = {{"image_codes", image_codes}, {"text_codes", text_codes}};
    return losses;
  }

 private:
  // Returns the token losses [B, N] of one direction.
  at::Tensor local_loss(const at::Tensor& queries, const at::Tensor& query_mask, const at::Tensor& context,
                        const at::Tensor& context_mask, const MultiHeadAttention* attention) {
    const at::Tensor sharpness = inverse_temperature(settings_.local_temperature, queries.scalar_type());
    const bool masks_queries = query_mask.defined();
    const auto body = [masks_queries, heads = settings_.attention_heads,
                       projected = attention != nullptr](const std::vector<at::Tensor>& tile) {
      const at::Tensor &query = tile[0], &other = tile[1], &mask = tile[2], &sharp = tile[3];
      const at::Tensor other_mask = masks_queries ? at::Tensor() : mask;
      const at::Tensor attended = projected ? multi_head_attention(query, other, at::TensorList(tile).slice(4), heads,
                                                                   attention_mask(other_mask, other.size(1)))
                                            : similarity_attention(query, other, other_mask, sharp);
      return token_contrast(query, unit_rows(attended), masks_queries ? mask : at::Tensor(), sharp);
    };
    std::vector<at::Tensor> shared = {sharpness};
    if (attention != nullptr)
      for (const at::Tensor& tensor : attention->projections()) shared.push_back(tensor);
    return map_tiles(body, {queries, context, masks_queries ? query_mask : context_mask}, shared, settings_.pairs.chunk);
  }

  std::int64_t embed_dim_;
  torch::nn::Linear prototypes_{nullptr};
  std::shared_ptr<MultiHeadAttention> text_attention_;
  std::shared_ptr<MultiHeadAttention> image_attention_;
};

}  // namespace

at::Tensor sinkhorn_codes(const at::Tensor& scores, double epsilon, std::int64_t iterations,
                          const at::Tensor& present) {
  const at::NoGradGuard no_grad;
  const at::Tensor absent = present.defined() ? ~present : at::Tensor();
  // Sets the absent columns of a matrix of logarithms to log(0).
  const auto of_present = [&](const at::Tensor& x) { return absent.defined() ? x.masked_fill(absent, -kInfinity) : x; };
  // No global normalization is needed, because a common factor cancels as soon as rows or columns are divided by their sums.
  at::Tensor q = of_present((scores.detach().to(at::kDouble) / epsilon).t());  // [K, B], log of the codes
  const auto by_column = [&] { return of_present(q - q.logsumexp(0, /*keepdim=*/true)); };
  for (std::int64_t i = 0; i < iterations; ++i) {
    q = q - q.logsumexp(1, /*keepdim=*/true);
    q = by_column();
  }
  return by_column().exp().t().to(scores.scalar_type());
}

void add_mgca(ObjectiveRegistry& list) {
  add_objective<Mgca, MgcaSettings>(list, "mgca", "multi-granularity cross-modal alignment (Wang et al. 2022)");
}

}  // namespace tessera
