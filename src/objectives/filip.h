#pragma once

#include <tessera/objectives/contrastive_objective.h>
#include <tessera/objectives/patch_weights.h>

namespace tessera {

struct FilipSettings {
  ContrastSettings pairs;
  double token_drop_rate = 0.2;
};

template <class Visitor>
void fields(Visitor& v, FilipSettings& s) {
  fields(v, s.pairs);
  v("token_drop_rate", s.token_drop_rate,
    "share of each image's patches and of each caption's tokens that training leaves out", config::in_half_open(0.0, 1.0));
}

/// FILIP (Yao et al. 2022): an image's similarity to a text is the mean, over the image's patches, of each patch's similarity to
/// the token most similar to it; a text's similarity to an image is the mean, over the text's tokens, of each token's similarity to
/// the patch most similar to it. The similarities [B, B, P, L] are never materialized, forward or backward. Without a chunk, a GPU
/// processes as many texts at a time as fit into about 64 MB; the CPU's kernel always processes one text at a time. Terms `loss_i2t`,
/// `loss_t2i`; details `similarity_i2t`, `similarity_t2i` [B, B] (row = image), `patch_keep` [B, P], `token_keep` [B, L].
class Filip : public ContrastiveObjective, public PatchWeights {
 public:
  Filip(const FilipSettings& settings, const ObjectiveContext& context)
      : ContrastiveObjective(context), settings_(settings) {}
  Losses forward(const Features& features, const StepContext& context) override;
  Needs needs() const override;
  std::map<std::string, double> chance_levels(std::int64_t pairs) const override;
  at::Tensor patch_weights(const TowerFeatures& images, const TowerFeatures& texts) const override;
  const char* describe_weights() const override;

 private:
  FilipSettings settings_;
};

}  // namespace tessera
