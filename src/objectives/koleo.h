#pragma once

#include <string>
#include <vector>

#include <tessera/objectives/objective.h>

namespace tessera {

struct KoleoSettings {
  std::string view = "global";
  std::int64_t crops = 2;
};

template <class Visitor>
void fields(Visitor& v, KoleoSettings& s) {
  v("view", s.view, "name of the crops whose embeddings are spread out; they are the image views VIEW_0, VIEW_1, ...");
  v("crops", s.crops, "number of these crops", config::in_range(1, 100));
}

/// The KoLeo regularizer (Sablayrolles et al. 2019, eq. 2), which DINOv2 (Oquab et al. 2024) uses with weight 0.1. A crop's loss is
/// -1/B sum_i log(min_{j != i} |x_i - x_j| + 1e-8), where x_i is the embedding of image i's crop, scaled to unit length; the crops' losses
/// are added up. The loss pushes images away from their nearest neighbors. Neighbors come from the batches of all ranks, so the loss does
/// not depend on the number of ranks. A batch of one image has loss 0.
class Koleo : public Objective {
 public:
  Koleo(const KoleoSettings& settings, const ObjectiveContext& context);
  /// Throws UserError if the image tower outputs no embedding.
  Losses forward(const Features& features, const StepContext& context) override;
  Needs needs() const override;

 private:
  std::vector<std::string> views_;
};

}  // namespace tessera
