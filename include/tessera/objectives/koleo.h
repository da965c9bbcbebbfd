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
  v("view", s.view, "the crops whose embeddings are spread: the image views VIEW_0, VIEW_1, ...");
  v("crops", s.crops, "how many there are", config::in_range(1, 100));
}

/// The KoLeo regularizer (Sablayrolles et al. 2019, eq. 2), as DINOv2 (Oquab et al. 2024) has it beside its losses, there with
/// weight 0.1: for each crop -1/B sum_i log(min_{j != i} |x_i - x_j| + 1e-8), x being the embeddings of unit length; the
/// crops' losses are added up. It keeps images apart from their nearest neighbors. Neighbors come from the batches of all
/// ranks, so that the loss does not depend on their number. A batch of one image has loss 0.
class Koleo : public Objective {
 public:
  Koleo(const KoleoSettings& settings, const ObjectiveContext& context);
  /// Throws UserError where the image tower gives no embedding.
  Losses forward(const Features& features, const StepContext& context) override;
  Needs needs() const override;

 private:
  std::vector<std::string> views_;
};

}  // namespace tessera
