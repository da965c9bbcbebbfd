#include <limits>

#include <ATen/ATen.h>

#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/metrics/localization.h"

namespace tessera::metrics {
namespace {

/// Assigns a different column to each row so that the total cost is minimal, by shortest augmenting paths with potentials.
/// There must be at least as many columns as rows.
std::vector<std::int64_t> cheapest_columns(const std::vector<std::vector<double>>& cost) {
  const std::size_t rows = cost.size();
  const std::size_t columns = cost.front().size();
  constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<double> row_potential(rows, 0), column_potential(columns, 0);
  std::vector<std::size_t> owner(columns, kNone);  // the row that is matched to each column
  for (std::size_t row = 0; row < rows; ++row) {
    std::vector<double> distance(columns, kInfinity);
    // before[c]: the column before column c on the shortest path from `row` to c; kNone if this path has no other column.
    std::vector<std::size_t> before(columns, kNone);
    std::vector<bool> done(columns, false);
    std::vector<std::size_t> path;  // the columns, except `end`, to which the shortest path from `row` is known
    std::size_t from_column = kNone;
    std::size_t end = kNone;
    double traveled = 0;
    while (end == kNone) {
      const std::size_t from_row = from_column == kNone ? row : owner[from_column];
      std::size_t nearest = kNone;
      for (std::size_t c = 0; c < columns; ++c) {
        if (done[c]) continue;
        const double through = traveled + cost[from_row][c] - row_potential[from_row] - column_potential[c];
        if (through < distance[c]) {
          distance[c] = through;
          before[c] = from_column;
        }
        if (nearest == kNone || distance[c] < distance[nearest]) nearest = c;
      }
      traveled = distance[nearest];
      done[nearest] = true;
      if (owner[nearest] == kNone) {
        end = nearest;
      } else {
        path.push_back(nearest);
        from_column = nearest;
      }
    }
    row_potential[row] += traveled;
    for (const std::size_t c : path) {
      row_potential[owner[c]] += traveled - distance[c];
      column_potential[c] -= traveled - distance[c];
    }
    for (std::size_t c = end; c != kNone; c = before[c]) owner[c] = before[c] == kNone ? row : owner[before[c]];
  }
  std::vector<std::int64_t> column_of(rows, -1);
  for (std::size_t c = 0; c < columns; ++c) {
    if (owner[c] != kNone) column_of[owner[c]] = static_cast<std::int64_t>(c);
  }
  return column_of;
}

}  // namespace

std::vector<std::pair<std::int64_t, std::int64_t>> best_matching(const std::vector<std::vector<double>>& value) {
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
  if (value.empty() || value.front().empty()) return pairs;
  const std::size_t rows = value.size();
  const std::size_t columns = value.front().size();
  const bool turned = rows > columns;
  std::vector<std::vector<double>> cost(std::min(rows, columns), std::vector<double>(std::max(rows, columns)));
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) (turned ? cost[c][r] : cost[r][c]) = -value[r][c];
  }
  const std::vector<std::int64_t> partner = cheapest_columns(cost);
  for (std::size_t i = 0; i < partner.size(); ++i) {
    const auto own = static_cast<std::int64_t>(i);
    pairs.push_back(turned ? std::pair(partner[i], own) : std::pair(own, partner[i]));
  }
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

TokenGroupScores token_group_iou(const at::Tensor& weights, const at::Tensor& text_mask, const at::Tensor& segments) {
  TORCH_CHECK(weights.dim() == 3 && weights.size(1) > 0, "token_group_iou: weights must be [B, K, L], got ", weights.sizes());
  const std::int64_t captions = weights.size(0), groups = weights.size(1), length = weights.size(2);
  TORCH_CHECK(text_mask.dim() == 2 && text_mask.size(0) == captions && text_mask.size(1) == length,
              "token_group_iou: text_mask must be [", captions, ", ", length, "], got ", text_mask.sizes());
  TORCH_CHECK(segments.dim() == 3 && segments.size(0) == captions && segments.size(2) == length,
              "token_group_iou: segments must be [", captions, ", S, ", length, "], got ", segments.sizes());
  const at::Tensor mask = text_mask.to(at::kCPU, at::kBool);
  const at::Tensor score = at::nan_to_num(weights.to(at::kCPU, at::kDouble), -INFINITY);
  TokenGroupScores out;
  out.assignment = at::where(mask, best_first(score.transpose(1, 2), 1).squeeze(2), -1);
  out.per_caption = at::full({captions, 4}, -1, at::kDouble);

  const at::Tensor phrases = at::logical_and(segments.to(at::kCPU, at::kBool), mask.unsqueeze(1));
  const at::Tensor in_group = out.assignment.unsqueeze(1).eq(at::arange(groups, at::kLong).view({1, groups, 1}));
  const at::Tensor group = at::logical_and(in_group, phrases.any(1, true));                         // [B, K, L]
  const at::Tensor shared = group.to(at::kDouble).matmul(phrases.to(at::kDouble).transpose(1, 2));  // [B, K, S]
  const at::Tensor group_size = group.sum(2), phrase_size = phrases.sum(2);
  const auto shared_at = shared.accessor<double, 3>();
  const auto group_at = group_size.accessor<std::int64_t, 2>();
  const auto phrase_at = phrase_size.accessor<std::int64_t, 2>();
  for (std::int64_t b = 0; b < captions; ++b) {
    std::vector<std::int64_t> real;
    for (std::int64_t s = 0; s < phrases.size(1); ++s) {
      if (phrase_at[b][s] > 0) real.push_back(s);
    }
    if (real.empty()) continue;
    const auto sizes = [&](std::int64_t k, std::int64_t s) {
      return static_cast<double>(group_at[b][k] + phrase_at[b][s]);
    };
    std::vector<std::vector<double>> iou(static_cast<std::size_t>(groups));
    for (std::int64_t k = 0; k < groups; ++k) {
      for (const std::int64_t s : real) {
        const double both = shared_at[b][k][s];
        iou[static_cast<std::size_t>(k)].push_back(both / (sizes(k, s) - both));
      }
    }
    const auto pairs = best_matching(iou);
    std::array<double, 4> sums{};
    for (const auto& [k, column] : pairs) {
      const std::int64_t s = real[static_cast<std::size_t>(column)];
      const double both = shared_at[b][k][s];
      sums[0] += iou[static_cast<std::size_t>(k)][static_cast<std::size_t>(column)];
      sums[1] += group_at[b][k] > 0 ? both / static_cast<double>(group_at[b][k]) : 0.0;
      sums[2] += both / static_cast<double>(phrase_at[b][s]);
      sums[3] += 2 * both / sizes(k, s);
    }
    for (std::int64_t i = 0; i < 4; ++i)
      out.per_caption[b][i] = sums[static_cast<std::size_t>(i)] / static_cast<double>(pairs.size());
  }
  return out;
}

at::Tensor grad_cam(const at::Tensor& features, const at::Tensor& gradients) {
  TORCH_CHECK(features.dim() == 3 && features.sizes() == gradients.sizes(),
              "grad_cam: features and gradients must be [B, N, w], got ", features.sizes(), " and ", gradients.sizes());
  return (features * gradients.mean(1, true)).sum(2).relu();
}

TokenLocalization token_localization(const at::Tensor& activations, const config::Size& grid) {
  TORCH_CHECK(activations.dim() == 3 && activations.is_floating_point() &&
                  activations.size(1) == grid.height * grid.width && activations.size(2) > 0,
              "token_localization: activations must be floating [B, P, Q] with P = ", grid.height, " * ", grid.width,
              " and Q at least 1, got ", activations.scalar_type(), " ", activations.sizes());
  const at::Tensor flat = activations.mean(2);  // [B, P]
  const at::Tensor low = flat.amin(1, /*keepdim=*/true), range = flat.amax(1, /*keepdim=*/true) - low;
  // A constant map is divided by 1, so that neither its values nor their gradients are 0 / 0.
  const at::Tensor normalized = (flat - low) / range.masked_fill(range == 0, 1);
  const auto image = [&](const at::Tensor& rows) { return rows.unflatten(1, {grid.height, grid.width}); };
  return {image(flat), image(normalized)};
}

}  // namespace tessera::metrics
