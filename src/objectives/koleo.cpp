#include <limits>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "src/objectives/add_objective.h"
#include "src/objectives/common/counted_views.h"
#include "src/objectives/pairs/features.h"
#include <tessera/distributed/collectives.h>
#include <tessera/objectives/objective.h>
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {

struct KoleoSettings {
  std::string view = "global";
  std::int64_t crops = 2;
};

void fields(auto& v, KoleoSettings& s) {
  v("view", s.view, "name of the crops whose embeddings are spread out; they are the image views VIEW_0, VIEW_1, ...");
  v("crops", s.crops, "number of these crops", config::in_range(1, 100));
}

constexpr double kLeastDistance = 1e-8;

// Returns the distance [B] of each row of `own` [B, D] to the nearest other row among the rows of all ranks.
at::Tensor distances_of_neighbors(const at::Tensor& own, const ProcessGroup& group) {
  const at::Tensor all = gather_rows(own, group);
  const std::int64_t first = group.rank() * own.size(0);
  at::Tensor nearest;
  {
    const at::NoGradGuard no_grad;
    const at::Tensor cosines = at::matmul(own, all.t());
    cosines.diagonal(first).fill_(-std::numeric_limits<double>::infinity());
    nearest = cosines.argmax(1);
  }
  return at::linalg_vector_norm(own - all.index_select(0, nearest) + kLeastDistance, 2, {1});
}

/// The KoLeo regularizer (Sablayrolles et al. 2019, eq. 2), which DINOv2 (Oquab et al. 2024) uses with weight 0.1. A crop's loss is
/// -1/B sum_i log(min_{j != i} |x_i - x_j| + 1e-8), where x_i is the embedding of image i's crop, scaled to unit length; the crops' losses
/// are added up. The loss pushes images away from their nearest neighbors. Neighbors come from the batches of all ranks, so the loss does
/// not depend on the number of ranks. A batch of one image has loss 0.
class Koleo : public Objective {
 public:
  Koleo(const KoleoSettings& settings, const ObjectiveContext& /*context*/)
      : views_(counted_views(settings.view, settings.crops)) {}

  /// Throws UserError if the image tower outputs no embedding.
  Losses forward(const Features& features, const StepContext& context) override {
    const NoAutocast no_autocast;
    at::Tensor loss;
    for (const std::string& view : views_) {
      const at::Tensor& global = features.image(view).global;
      if (!global.defined()) refuse_missing_feature("koleo", "image_global");
      const at::Tensor rows = unit_rows(to_compute(global));
      const at::Tensor of_view = rows.size(0) * context.group.size() > 1
                                     ? -(distances_of_neighbors(rows, context.group) + kLeastDistance).log().mean()
                                     : rows.sum() * 0;
      loss = loss.defined() ? loss + of_view : of_view;
    }
    return {loss, {}, {}};
  }

  Needs needs() const override {
    Needs needs{.images = {}, .texts = {}};
    for (const std::string& view : views_) needs.images[view] = {};
    return needs;
  }

 private:
  std::vector<std::string> views_;
};

}  // namespace

void add_koleo(ObjectiveRegistry& list) {
  add_objective<Koleo, KoleoSettings>(list, "koleo", "pushes images away from their nearest neighbors (DINOv2)");
}

}  // namespace tessera
