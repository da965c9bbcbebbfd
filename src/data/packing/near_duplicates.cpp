#include "src/data/packing/near_duplicates.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/base/random.h>

namespace tessera {
namespace {

constexpr std::int64_t kRowsAtOnce = 4096;
constexpr std::int64_t kRowsPerCenter = 64;  // rows from which a center is computed
constexpr std::int64_t kComparedAtOnce = 256;  // few, because half of the cosines of rows among themselves are not needed
constexpr float kNoCosine = -2;

using ShowProgress = std::function<void(const char* phase, std::int64_t done, std::int64_t total)>;

/// Calls work(begin, count) for pieces of `size` rows.
template <class Work>
void for_each_piece(std::int64_t size, const Work& work) {
  for (std::int64_t begin = 0; begin < size; begin += kRowsAtOnce) work(begin, std::min(kRowsAtOnce, size - begin));
}

/// Returns centers [K, D] of length 1. They are computed from rows that are spread over the file. A center without rows starts again as one
/// of these.
at::Tensor cluster_centers(const StoredEmbeddings& rows, std::int64_t clusters, const DuplicateSettings& settings,
                           const ShowProgress& progress) {
  const std::int64_t size = std::min(rows.size(), kRowsPerCenter * clusters);
  const at::Tensor indices = at::empty({size}, at::kLong);
  for (std::int64_t i = 0; i < size; ++i) indices.mutable_data_ptr<std::int64_t>()[i] = i * rows.size() / size;
  const at::Tensor sample = rows.unit_rows(indices);
  Random random(settings.seed, Purpose::clusters);
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  random.shuffle(order);
  order.resize(static_cast<std::size_t>(clusters));
  at::Tensor centers = sample.index_select(0, at::tensor(order, at::kLong));
  for (std::int64_t i = 0; i < settings.iterations; ++i) {
    const at::Tensor sums = at::zeros_like(centers);
    for_each_piece(size, [&](std::int64_t begin, std::int64_t count) {
      const at::Tensor some = sample.narrow(0, begin, count);
      sums.index_add_(0, some.mm(centers.t()).argmax(1), some);
      progress("clustering", i * size + begin + count, settings.iterations * size);
    });
    const at::Tensor lengths = sums.norm(2, {1}, /*keepdim=*/true);
    centers = sums / lengths.clamp_min(1e-12);
    for (std::int64_t k = 0; k < clusters; ++k)
      if (lengths[k].item<float>() < 1e-12F) centers[k].copy_(sample[random.below(size)]);
  }
  return centers;
}

/// The clusters of each row.
struct Assignment {
  at::Tensor clusters;  // int32 [N, M]
  at::Tensor cosine;    // float32 [N], with the nearest center
};

Assignment assign(const StoredEmbeddings& rows, const at::Tensor& centers, std::int64_t nearest, const ShowProgress& progress) {
  Assignment out{at::empty({rows.size(), nearest}, at::kInt), at::empty({rows.size()})};
  for_each_piece(rows.size(), [&](std::int64_t begin, std::int64_t count) {
    const auto [cosines, clusters] = rows.unit_rows(begin, count).mm(centers.t()).topk(nearest, 1);
    out.clusters.narrow(0, begin, count).copy_(clusters);
    out.cosine.narrow(0, begin, count).copy_(cosines.select(1, 0));
    progress("assigning rows", begin + count, rows.size());
  });
  return out;
}

/// Returns the rows of each cluster in the order of precedence.
std::vector<std::vector<std::int64_t>> members_of(const Assignment& assignment, std::int64_t clusters, const std::string& keep) {
  const at::Tensor order = keep == "first" ? at::arange(assignment.cosine.size(0))
                                           : at::argsort(assignment.cosine, /*stable=*/true, 0, /*descending=*/keep == "near");
  const std::int64_t nearest = assignment.clusters.size(1);
  const auto* of = assignment.clusters.const_data_ptr<std::int32_t>();
  const auto* rows = order.const_data_ptr<std::int64_t>();
  std::vector<std::vector<std::int64_t>> out(static_cast<std::size_t>(clusters));
  for (std::int64_t i = 0; i < order.size(0); ++i)
    for (std::int64_t m = 0; m < nearest; ++m) out[static_cast<std::size_t>(of[rows[i] * nearest + m])].push_back(rows[i]);
  return out;
}

/// Compares each member with those before it. Only rows with a duplicate need to know which row that is.
void compare(const StoredEmbeddings& rows, const std::vector<std::int64_t>& members, double threshold, Duplicates& found) {
  const at::Tensor indices = at::tensor(members, at::kLong), all = rows.unit_rows(indices);
  for (std::int64_t begin = 0; begin < indices.size(0); begin += kComparedAtOnce) {
    const std::int64_t count = std::min(kComparedAtOnce, indices.size(0) - begin);
    const at::Tensor later = all.narrow(0, begin, count), own = indices.narrow(0, begin, count);
    at::Tensor best = found.cosine.index_select(0, own), of = found.of.index_select(0, own);
    const auto compare_with = [&](std::int64_t first, std::int64_t earlier) {
      at::Tensor cosines = later.mm(all.narrow(0, first, earlier).t());
      if (first == begin) cosines.masked_fill_(at::ones({count, count}, at::kBool).triu_(), kNoCosine);
      const at::Tensor greatest = cosines.amax(1);
      const at::Tensor duplicates = (greatest > best).logical_and(greatest >= threshold).nonzero().squeeze(1);
      const at::Tensor places = cosines.index_select(0, duplicates).argmax(1) + first;
      of.index_copy_(0, duplicates, indices.index_select(0, places));
      best = at::maximum(best, greatest);
    };
    for_each_piece(begin, compare_with);
    compare_with(begin, count);
    found.cosine.index_copy_(0, own, best);
    found.of.index_copy_(0, own, of);
  }
}

}  // namespace

Duplicates find_near_duplicates(const StoredEmbeddings& rows, const DuplicateSettings& settings, const ShowProgress& progress) {
  const at::NoGradGuard no_grad;
  const std::int64_t clusters =
      settings.clusters > 0 ? settings.clusters : std::max<std::int64_t>(1, std::llround(std::sqrt(static_cast<double>(rows.size()))));
  if (clusters > rows.size()) user_error("--clusters ", clusters, ": there are only ", rows.size(), " embeddings");
  const at::Tensor centers = cluster_centers(rows, clusters, settings, progress);
  const std::int64_t nearest = std::min(settings.nearest, clusters);
  const auto members = members_of(assign(rows, centers, nearest, progress), clusters, settings.keep);
  Duplicates out{at::full({rows.size()}, -1, at::kLong), at::full({rows.size()}, kNoCosine)};
  std::int64_t done = 0;
  for (const std::vector<std::int64_t>& each : members) {
    if (each.size() > 1) compare(rows, each, settings.threshold, out);
    progress("comparing rows", done += std::ssize(each), nearest * rows.size());
  }
  return out;
}

}  // namespace tessera
