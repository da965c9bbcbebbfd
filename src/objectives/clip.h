#pragma once

#include <tessera/objectives/contrastive_objective.h>
#include <tessera/objectives/negative_texts.h>

namespace tessera {

struct ClipSettings {
  ContrastSettings pairs;
  NegativeTextSettings negatives;
  bool local_loss = true;
};

template <class Visitor>
void fields(Visitor& v, ClipSettings& s) {
  fields(v, s.pairs);
  fields(v, s.negatives);
  v("local_loss", s.local_loss, "with several ranks, each rank computes only its own pairs' part of the loss; false: each computes "
                                "the whole loss");
}

/// The contrastive loss of CLIP (Radford et al. 2021): InfoNCE on the cosines of global embeddings. Terms `loss_i2t`, `loss_t2i`.
/// With hard negatives, images are also compared with the negative texts (NegCLIP, Yuksekgonul et al. 2023), and the statistic
/// `negatives_per_image` is the mean number of present negatives.
class Clip : public ContrastiveObjective {
 public:
  Clip(const ClipSettings& settings, const ObjectiveContext& context)
      : ContrastiveObjective(context), settings_(settings) {}
  Losses forward(const Features& features, const StepContext& context) override;
  Needs needs() const override;
  std::map<std::string, double> chance_levels(std::int64_t pairs) const override;

 private:
  ClipSettings settings_;
};

}  // namespace tessera
