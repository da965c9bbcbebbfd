#pragma once

#include <tessera/objectives/contrastive_objective.h>

namespace tessera {

struct ClipSettings {
  bool local_loss = true;
  std::optional<std::int64_t> chunk;
  bool mask_duplicates = false;
};

template <class Visitor>
void fields(Visitor& v, ClipSettings& s) {
  v("local_loss", s.local_loss, "on several ranks each computes only the rows of its own pairs");
  v("chunk", s.chunk, "images per tile of the similarities, so that [B, B] is never held; null: all at once",
    config::at_least(1));
  v("mask_duplicates", s.mask_duplicates, kMaskDuplicatesHelp);
}

/// The contrastive loss of CLIP (Radford et al. 2021): InfoNCE of the cosines of global embeddings. Terms `loss_i2t`,
/// `loss_t2i`.
class Clip : public ContrastiveObjective {
 public:
  explicit Clip(const ClipSettings& settings) : settings_(settings) {}
  Losses forward(const Features& features, const StepContext& context) override;
  Needs needs() const override;

 private:
  ClipSettings settings_;
};

}  // namespace tessera
