#include <limits>

#include <ATen/ATen.h>

#include "src/objectives/common/counted_views.h"
#include "src/objectives/pairs/features.h"
#include "src/objectives/koleo.h"
#include <tessera/distributed/collectives.h>
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {

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

}  // namespace

Koleo::Koleo(const KoleoSettings& settings, const ObjectiveContext& /*context*/)
    : views_(counted_views(settings.view, settings.crops)) {}

Needs Koleo::needs() const {
  Needs needs{.images = {}, .texts = {}};
  for (const std::string& view : views_) needs.images[view] = {};
  return needs;
}

Losses Koleo::forward(const Features& features, const StepContext& context) {
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

}  // namespace tessera
