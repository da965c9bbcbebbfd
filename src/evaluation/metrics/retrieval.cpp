#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/Tensor.h>
#include <ATen/Parallel.h>

#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/metrics/retrieval.h"

namespace tessera::metrics {
namespace {

RetrievalScores scores_of_ranks(const at::Tensor& image_to_text, const at::Tensor& text_to_image, const std::vector<std::int64_t>& topk) {
  return {recall_at(image_to_text, topk), recall_at(text_to_image, topk), image_to_text, text_to_image};
}

constexpr std::int64_t kImagesOfTile = 1024, kTextsOfTile = 4096;
constexpr double kNothing = -std::numeric_limits<double>::infinity();

/// Rows of features and their L2 norms. Before a product, each row is divided by its norm, as in unit_rows(). So two rows with the same
/// direction tie: if both norms have no rounding error, the rows' cosines with any other row are bitwise equal.
template <class T>
class UnitRows {
 public:
  explicit UnitRows(const at::Tensor& rows) : rows_(rows), width_(rows.size(1)), length_(static_cast<std::size_t>(rows.size(0))) {
    at::parallel_for(0, size(), 64, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        length_[static_cast<std::size_t>(i)] = std::max(std::sqrt(product({row(i), 1}, {row(i), 1})), 1e-12);
    });
  }

  std::int64_t size() const { return rows_.size(0); }
  std::int64_t width() const { return width_; }

  /// Returns the rows begin, ..., end - 1 as unit vectors in float32.
  at::Tensor block(std::int64_t begin, std::int64_t end) const {
    at::Tensor out = at::empty({end - begin, width_}, at::kFloat);
    auto* to = out.mutable_data_ptr<float>();
    at::parallel_for(begin, end, 64, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i)
        for (std::int64_t d = 0; d < width_; ++d)
          to[(i - begin) * width_ + d] = static_cast<float>(static_cast<double>(row(i)[d]) / length_[static_cast<std::size_t>(i)]);
    });
    return out;
  }

  /// Returns the cosine of row `own` of this object with row `others` of `other`, in double precision; kNothing instead of NaN.
  double cosine(std::int64_t own, const UnitRows& other, std::int64_t others) const {
    const double value = product({row(own), length_[static_cast<std::size_t>(own)]},
                                 {other.row(others), other.length_[static_cast<std::size_t>(others)]});
    return std::isnan(value) ? kNothing : value;
  }

 private:
  const T* row(std::int64_t index) const { return rows_.template const_data_ptr<T>() + index * width_; }

  /// A row and the number that its entries are divided by.
  struct Divided {
    const T* row;
    double by;
    double operator[](std::int64_t d) const { return static_cast<double>(row[d]) / by; }
  };

  double product(Divided a, Divided b) const {
    constexpr std::int64_t kLanes = 8;  // number of separate sums; a single sum would not be vectorized, because it must not be reordered
    double lanes[kLanes] = {};
    std::int64_t d = 0;
    for (; d + kLanes <= width_; d += kLanes)
      for (std::int64_t lane = 0; lane < kLanes; ++lane)
        lanes[lane] += a[d + lane] * b[d + lane];
    for (; d < width_; ++d) lanes[0] += a[d] * b[d];
    double sum = 0;
    for (const double lane : lanes) sum += lane;
    return sum;
  }

  at::Tensor rows_;
  std::int64_t width_;
  std::vector<double> length_;
};

/// The best correct answer of each query, and the number of candidates that rank before it.
class Targets {
 public:
  Targets(std::int64_t count, double error)
      : error_(error),
        best_(static_cast<std::size_t>(count), kNothing),
        first_(best_.size(), -1),
        before_(best_.size(), 0),
        low_(best_.size(), std::numeric_limits<float>::infinity()),
        high_(low_) {}

  /// Adds a correct answer. The answers of a query must be added in ascending order of their index.
  void offer(std::int64_t query, std::int64_t answer, double cosine) {
    const auto q = static_cast<std::size_t>(query);
    if (first_[q] >= 0 && cosine <= best_[q]) return;
    first_[q] = answer;
    best_[q] = cosine;
    if (cosine == kNothing) return;
    low_[q] = std::nextafter(static_cast<float>(cosine - error_), -2.0F);
    high_[q] = std::nextafter(static_cast<float>(cosine + error_), 2.0F);
  }

  /// low() and high() return a lower and an upper bound for each query. A candidate whose float32 cosine is below the lower bound ranks
  /// behind the correct answer. A candidate whose float32 cosine is above the upper bound ranks before the correct answer.
  const float* low() const { return low_.data(); }
  const float* high() const { return high_.data(); }

  void add_before(std::int64_t query, std::int64_t count) { before_[static_cast<std::size_t>(query)] += count; }
  /// Ranks a candidate whose float32 cosine is between low() and high(). `cosine` is its cosine in double precision.
  void judge(std::int64_t query, std::int64_t candidate, double cosine) {
    const auto q = static_cast<std::size_t>(query);
    before_[q] += cosine > best_[q] || (cosine == best_[q] && candidate < first_[q]) ? 1 : 0;
  }

  at::Tensor ranks(std::int64_t candidates) const {
    at::Tensor out = at::empty({std::ssize(best_)}, at::kLong);
    auto* to = out.mutable_data_ptr<std::int64_t>();
    // A correct answer whose cosine is NaN ranks last, not first.
    for (std::size_t q = 0; q < best_.size(); ++q) to[q] = first_[q] < 0 ? -1 : best_[q] == kNothing ? candidates : before_[q];
    return out;
  }

 private:
  double error_;
  std::vector<double> best_;
  std::vector<std::int64_t> first_, before_;
  std::vector<float> low_, high_;
};

/// A block of the cosine matrix.
struct Tile {
  const float* cosines;  // [images, texts]
  std::int64_t first_image, images, first_text, texts;
};

template <class T>
void count_texts(const Tile& tile, const UnitRows<T>& images, const UnitRows<T>& texts, Targets& of_images) {
  at::parallel_for(0, tile.images, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t image = tile.first_image + r;
      const float* row = tile.cosines + r * tile.texts;
      const float low = of_images.low()[image], high = of_images.high()[image];
      std::int32_t before = 0, not_behind = 0;
      for (std::int64_t c = 0; c < tile.texts; ++c) {
        before += row[c] > high ? 1 : 0;
        not_behind += row[c] >= low ? 1 : 0;
      }
      of_images.add_before(image, before);
      if (not_behind == before) continue;
      for (std::int64_t c = 0; c < tile.texts; ++c)
        if (row[c] >= low && row[c] <= high)
          of_images.judge(image, tile.first_text + c, images.cosine(image, texts, tile.first_text + c));
    }
  });
}

template <class T>
void count_images(const Tile& tile, const UnitRows<T>& images, const UnitRows<T>& texts, Targets& of_texts) {
  at::parallel_for(0, tile.texts, 256, [&](std::int64_t begin, std::int64_t end) {
    const auto width = static_cast<std::size_t>(end - begin);
    const float* low = of_texts.low() + tile.first_text + begin;
    const float* high = of_texts.high() + tile.first_text + begin;
    std::vector<std::int32_t> before(width, 0), not_behind(width, 0);
    for (std::int64_t r = 0; r < tile.images; ++r) {
      const float* row = tile.cosines + r * tile.texts + begin;
      for (std::size_t c = 0; c < width; ++c) {
        before[c] += row[c] > high[c] ? 1 : 0;
        not_behind[c] += row[c] >= low[c] ? 1 : 0;
      }
    }
    for (std::size_t c = 0; c < width; ++c) {
      const std::int64_t text = tile.first_text + begin + static_cast<std::int64_t>(c);
      of_texts.add_before(text, before[c]);
      if (not_behind[c] == before[c]) continue;
      for (std::int64_t r = 0; r < tile.images; ++r) {
        const float cosine = tile.cosines[r * tile.texts + begin + static_cast<std::int64_t>(c)];
        if (cosine >= low[c] && cosine <= high[c])
          of_texts.judge(text, tile.first_image + r, texts.cosine(text, images, tile.first_image + r));
      }
    }
  });
}

template <class T>
RetrievalScores compute_scores(const UnitRows<T>& images, const UnitRows<T>& texts, const std::int64_t* owner,
                               const std::vector<std::int64_t>& topk) {
  // A bound on the float32 error of a cosine of unit vectors. It covers the rounding of the vectors and of a sum of D products
  // in any order (Higham 2002, 3.1).
  const double error = static_cast<double>(images.width() + 8) * std::ldexp(1.0, -24);
  Targets of_images(images.size(), error), of_texts(texts.size(), error);
  for (std::int64_t text = 0; text < texts.size(); ++text) {
    if (owner[text] < 0) continue;
    of_images.offer(owner[text], text, images.cosine(owner[text], texts, text));
    of_texts.offer(text, owner[text], texts.cosine(text, images, owner[text]));
  }
  at::Tensor cosines;
  for (std::int64_t text = 0; text < texts.size(); text += kTextsOfTile) {
    const std::int64_t last_text = std::min(text + kTextsOfTile, texts.size());
    const at::Tensor columns = texts.block(text, last_text).t();
    for (std::int64_t image = 0; image < images.size(); image += kImagesOfTile) {
      const std::int64_t last_image = std::min(image + kImagesOfTile, images.size());
      cosines = at::matmul(images.block(image, last_image), columns);  // [images, texts]
      const Tile tile{cosines.const_data_ptr<float>(), image, last_image - image, text, last_text - text};
      count_texts(tile, images, texts, of_images);
      count_images(tile, images, texts, of_texts);
    }
  }
  return scores_of_ranks(of_images.ranks(texts.size()), of_texts.ranks(images.size()), topk);
}

// Computes the scores in both directions. Each tile of the cosine matrix is computed only once, in float32, for both directions. If a
// cosine is so close to a correct answer's cosine that rounding could change their order, it is recomputed in double precision. Needs
// memory for one tile and a few numbers per row. images: floating-point [N, D]. texts: floating-point [M, D]. owner: int64 [M], each
// text's image, below N; negative if the text has none. All tensors must be on the CPU.
RetrievalScores cosine_scores(const at::Tensor& images, const at::Tensor& texts, const at::Tensor& owner,
                              const std::vector<std::int64_t>& topk) {
  const at::Tensor own = owner.contiguous();
  const auto* data = own.const_data_ptr<std::int64_t>();
  const auto scores = [&]<class T>(at::ScalarType type, T) {
    return compute_scores(UnitRows<T>(images.to(type).contiguous()), UnitRows<T>(texts.to(type).contiguous()), data, topk);
  };
  const bool exact = images.scalar_type() == at::kDouble || texts.scalar_type() == at::kDouble;
  return exact ? scores(at::kDouble, 0.0) : scores(at::kFloat, 0.0F);
}

/// Returns best_right_rank() of all queries. `scores_of` returns the similarities of a range of queries with all candidates.
at::Tensor rank_in_tiles(const std::function<at::Tensor(RowRange)>& scores_of, const at::Tensor& query_id, const at::Tensor& candidate_id) {
  at::Tensor ranks = at::full_like(query_id, -1);
  if (candidate_id.size(0) == 0) return ranks;
  for_tiles(query_id.size(0), candidate_id.size(0), [&](std::int64_t begin, std::int64_t end) {
    ranks.slice(0, begin, end).copy_(best_right_rank(scores_of({begin, end}), query_id.slice(0, begin, end), candidate_id));
  });
  return ranks;
}

void check_owner(const at::Tensor& owner, std::int64_t images) {
  TORCH_CHECK(owner.numel() == 0 || owner.max().item<std::int64_t>() < images, "retrieval_recall: text_image must lie below ", images);
}

}  // namespace

RetrievalScores retrieval_recall(const SimilarityTile& similarity, std::int64_t images, const at::Tensor& text_image,
                                 const std::vector<std::int64_t>& topk) {
  const at::Tensor owner = text_image.to(at::kLong);
  const std::int64_t texts = owner.size(0);
  check_owner(owner, images);
  const at::Tensor image = at::arange(images, owner.options());
  const auto nearest_texts = [&](RowRange rows) { return similarity(rows, {0, texts}); };
  const auto nearest_images = [&](RowRange rows) { return similarity({0, images}, rows).t(); };
  return scores_of_ranks(rank_in_tiles(nearest_texts, image, owner), rank_in_tiles(nearest_images, owner, image), topk);
}

RetrievalScores retrieval_recall(const at::Tensor& image_features, const at::Tensor& text_features,
                                 const at::Tensor& text_image, const std::vector<std::int64_t>& topk) {
  TORCH_CHECK(image_features.dim() == 2 && text_features.dim() == 2 && image_features.size(1) == text_features.size(1),
              "retrieval_recall: features must be [N, D] and [M, D], got ", image_features.sizes(), " and ",
              text_features.sizes());
  TORCH_CHECK(text_image.dim() == 1 && text_image.size(0) == text_features.size(0),
              "retrieval_recall: text_image must be [", text_features.size(0), "], got ", text_image.sizes());
  const at::Tensor owner = text_image.to(at::kCPU, at::kLong);
  check_owner(owner, image_features.size(0));
  return cosine_scores(image_features.to(at::kCPU), text_features.to(at::kCPU), owner, topk);
}

std::pair<at::Tensor, at::Tensor> nearest_by_cosine(const at::Tensor& queries, const at::Tensor& candidates, std::int64_t k) {
  TORCH_CHECK(queries.dim() == 2 && candidates.dim() == 2 && queries.size(1) == candidates.size(1),
              "nearest_by_cosine: features must be [Q, D] and [M, D], got ", queries.sizes(), " and ",
              candidates.sizes());
  const CosinesWith cosines_with(candidates);
  const std::int64_t count = candidates.size(0);
  k = std::min(k, count);
  at::Tensor indices = at::empty({queries.size(0), k}, candidates.options().dtype(at::kLong));
  at::Tensor cosines = at::empty({queries.size(0), k}, candidates.options().dtype(at::kDouble));
  for_tiles(queries.size(0), count, [&](std::int64_t begin, std::int64_t end) {
    const at::Tensor scores = at::nan_to_num(cosines_with(queries.slice(0, begin, end)), -INFINITY);
    const at::Tensor best = best_first(scores, k);
    indices.slice(0, begin, end).copy_(best);
    cosines.slice(0, begin, end).copy_(scores.gather(1, best));
  });
  return {indices, cosines};
}

}  // namespace tessera::metrics
