#include <algorithm>

#include <ATen/ATen.h>

#include "src/objectives/add_objective.h"
#include "src/objectives/pairs/contrast.h"
#include "src/objectives/pairs/pair_objective.h"
#include "src/objectives/pairs/ring_columns.h"
#include <tessera/distributed/collectives.h>
#include <tessera/objectives/patch_weights.h>
#include <tessera/ops/max_similarity.h>

namespace tessera {
namespace {

struct FilipSettings {
  ContrastSettings pairs;
  double token_drop_rate = 0.2;
};

void fields(auto& v, FilipSettings& s) {
  fields(v, s.pairs);
  v("token_drop_rate", s.token_drop_rate,
    "share of each image's patches and of each caption's tokens that training leaves out", config::in_half_open(0.0, 1.0));
}

struct Kept {
  at::Tensor patches;  // [B, P] bool
  at::Tensor tokens;   // [B, L] bool
};

// Returns a mask that is true for the count[b] entries with the highest scores in row b. Among equal scores, entries with lower
// indices come first.
at::Tensor best(const at::Tensor& score, const at::Tensor& count) {
  const at::Tensor order = std::get<1>(score.sort(/*stable=*/true, /*dim=*/1, /*descending=*/true));
  const at::Tensor place = at::arange(score.size(1), order.options()).expand_as(order);
  const at::Tensor rank = at::empty_like(order).scatter_(1, order, place);
  return rank < count.unsqueeze(1);
}

// Returns how many of n entries remain if the share `rate` of them is dropped: n - floor(rate n + 1e-6).
at::Tensor remaining(const at::Tensor& n, double rate) {
  return n - (n.to(at::kDouble) * rate + 1e-6).floor().to(at::kLong);
}

Kept choose(const at::Tensor& patches, const at::Tensor& tokens, const at::Tensor& mask, double rate,
            std::int64_t chunk) {
  const at::NoGradGuard no_grad;
  Kept kept{at::ones(patches.sizes().slice(0, 2), mask.options()), mask};
  if (rate == 0 || tokens.size(1) == 0) return kept;
  std::vector<at::Tensor> patch_scores, token_scores;
  for (std::int64_t start = 0; start < patches.size(0); start += chunk) {
    const std::int64_t count = std::min(chunk, patches.size(0) - start);
    const at::Tensor cosines =
        at::matmul(patches.narrow(0, start, count), tokens.narrow(0, start, count).mT());  // [b, P, L]
    patch_scores.push_back(
        cosines.masked_fill(~mask.narrow(0, start, count).unsqueeze(1), lowest(cosines.scalar_type())).amax(2));
    token_scores.push_back(cosines.amax(1));
  }
  const at::Tensor lengths = mask.sum(1);
  const at::Tensor all = at::full_like(lengths, patches.size(1));
  kept.patches = best(at::cat(patch_scores), at::where(lengths > 0, remaining(all, rate), all));
  const at::Tensor scores = at::cat(token_scores);
  kept.tokens = best(scores.masked_fill(~mask, lowest(scores.scalar_type())), remaining(lengths, rate)) & mask;
  return kept;
}

// Returns the similarities [B, C] of this rank's images and all texts, one tensor for each direction. If `chunk` is set, the texts of the
// other ranks arrive one rank after the other.
std::pair<at::Tensor, at::Tensor> similarities(const at::Tensor& patches, const at::Tensor& tokens, const Kept& kept,
                                               std::optional<std::int64_t> chunk, const ProcessGroup& group) {
  if (!chunk || group.alone())
    return max_similarity(patches, gather_rows(tokens, group), kept.patches, gather_rows(kept.tokens, group), chunk);
  const auto body = [chunk](const std::vector<at::Tensor>& in) {
    const auto [i2t, t2i] = max_similarity(in[0], in[2], in[1], in[3], chunk);
    return at::stack({i2t, t2i});
  };
  const at::Tensor both = ring_columns(body, {patches, kept.patches}, tokens, kept.tokens, group);  // [2, B, C]
  return {both[0], both[1]};
}

/// FILIP (Yao et al. 2022): an image's similarity to a text is the mean, over the image's patches, of each patch's similarity to
/// the token most similar to it; a text's similarity to an image is the mean, over the text's tokens, of each token's similarity to
/// the patch most similar to it. The similarities [B, B, P, L] are never materialized, forward or backward. Without a chunk, a GPU
/// processes as many texts at a time as fit into about 64 MB; the CPU's kernel always processes one text at a time. Terms `loss_i2t`,
/// `loss_t2i`; details `similarity_i2t`, `similarity_t2i` [B, B] (row = image), `patch_keep` [B, P], `token_keep` [B, L].
class Filip : public PairObjective<FilipSettings>, public PatchWeights {
 public:
  Filip(const FilipSettings& settings, const ObjectiveContext& context)
      : PairObjective("filip", {.image_tokens = true, .text_tokens = true}, settings, context) {
    contrasts_ = {"loss_i2t", "loss_t2i"};
  }

  Losses loss(const PairFeatures& pairs, const Features& /*features*/, const StepContext& context) override {
    const at::Tensor patches = unit_rows(pairs.image_tokens);
    const at::Tensor tokens = unit_rows(pairs.text_tokens);
    const double rate = context.training ? settings_.token_drop_rate : 0.0;
    constexpr std::int64_t kOwnPairsPerTile = 64;
    const Kept kept = choose(patches, tokens, pairs.text_mask, rate, settings_.pairs.chunk.samples.value_or(kOwnPairsPerTile));
    const auto [i2t, t2i] = similarities(patches, tokens, kept, settings_.pairs.chunk, context.group);  // [B, C]

    const Contrast contrast = info_nce(i2t, t2i, scale(pairs.dtype()), context.group, pairs.relation);
    Losses losses{contrast.loss, {{"loss_i2t", contrast.i2t}, {"loss_t2i", contrast.t2i}}, {}};
    if (context.inspect)
      losses.details = {{"similarity_i2t", i2t.detach()},
                        {"similarity_t2i", t2i.detach()},
                        {"patch_keep", kept.patches},
                        {"token_keep", kept.tokens}};
    return losses;
  }

  at::Tensor patch_weights(const TowerFeatures& images, const TowerFeatures& texts) const override {
    const at::NoGradGuard no_grad;
    return at::matmul(unit_rows(to_compute(texts.tokens)), unit_rows(to_compute(images.tokens)).mT());
  }

  const char* describe_weights() const override {
    return "The cosine of a word with each patch, of which filip takes the greatest.";
  }
};

}  // namespace

void add_filip(ObjectiveRegistry& list) {
  add_objective<Filip, FilipSettings>(list, "filip", "token-wise maximum similarity (Yao et al. 2022)");
}

}  // namespace tessera
