#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "src/index/index.h"
#include "src/index/index_writer.h"
#include <tessera/base/random.h>

/// Random documents, and a brute-force reference for the search of an index.
namespace tessera::index {

struct RandomVectors {
  std::int64_t rows = 100;
  std::int64_t vocab_size = 50;
  std::int64_t most_tokens = 12;  // largest number of tokens per row; some rows have none
  int weights = 0;                // number of distinct weights (a small number causes ties); if 0, weights are arbitrary real numbers
};

/// Returns random rows in which tokens of low ids are far more frequent than those of high ids, as in text.
inline SparseVectors random_vectors(const RandomVectors& shape, std::uint64_t seed, const std::string& prefix = "d") {
  Random random(seed, Purpose::step, {});
  SparseVectors out{shape.vocab_size};
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    std::map<std::int32_t, float> row;
    for (std::int64_t i = random.below(shape.most_tokens + 1); i > 0; --i) {
      const double u = static_cast<double>(random.below(1 << 20)) / (1 << 20);
      const auto token = static_cast<std::int32_t>(u * u * static_cast<double>(shape.vocab_size));
      row[token] = shape.weights > 0 ? static_cast<float>(1 + random.below(shape.weights))
                                     : 0.01F + static_cast<float>(random.below(1 << 16)) / (1 << 15);
    }
    std::vector<TokenWeight> weights;
    for (const auto& [token, weight] : row) weights.push_back({token, weight});
    append_row(out, prefix + std::to_string(r), weights, "test");
  }
  return out;
}

/// Returns a weight as the index stores it, computed from the definition.
inline std::uint64_t impact_of(float weight, const Quantization& quantization) {
  const double steps =
      std::round(weight * static_cast<double>(quantization.largest_impact()) / quantization.largest_weight);
  return static_cast<std::uint64_t>(std::min(steps, static_cast<double>(quantization.largest_impact())));
}

/// Returns the hits of a search over all documents, best first. Hits are the documents that the filter allows and whose product with the
/// query is above 0.
inline std::vector<Hit> brute_force(const SparseVectors& documents, const QuantizedQuery& query,
                                    const Quantization& quantization, const Filter& filter = {},
                                    const std::vector<bool>& removed = {}) {
  std::vector<Hit> hits;
  for (std::int64_t r = 0; r < documents.rows(); ++r) {
    std::map<std::int32_t, std::uint64_t> impacts;
    for (std::size_t i = 0; i < documents.tokens_of(r).size(); ++i)
      if (const std::uint64_t impact = impact_of(documents.weights_of(r)[i], quantization); impact > 0)
        impacts[documents.tokens_of(r)[i]] = impact;
    const auto active = [&](std::int32_t token) { return impacts.contains(token); };
    const bool allowed =
        (removed.empty() || !removed[r]) && std::all_of(filter.must.begin(), filter.must.end(), active) &&
        std::none_of(filter.must_not.begin(), filter.must_not.end(), active) &&
        (filter.should.empty() || std::any_of(filter.should.begin(), filter.should.end(), active)) &&
        (!filter.only_documents || std::count(filter.documents.begin(), filter.documents.end(), r) > 0);
    std::uint64_t product = 0;
    for (std::size_t i = 0; i < query.tokens.size(); ++i)
      if (active(query.tokens[i])) product += impacts[query.tokens[i]] * query.weights[i];
    if (allowed && product > 0) hits.push_back({r, product, 0});
  }
  std::stable_sort(hits.begin(), hits.end(), [](const Hit& a, const Hit& b) { return a.product > b.product; });
  return hits;
}

inline void expect_same_hits(const std::vector<Hit>& found, std::vector<Hit> expected, std::int64_t k) {
  expected.resize(std::min<std::size_t>(expected.size(), static_cast<std::size_t>(k)));
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].document, expected[i].document) << "rank " << i;
    EXPECT_EQ(found[i].product, expected[i].product) << "rank " << i;
  }
}

/// Makes a query from a row of `queries`.
inline QuantizedQuery query_of(const SparseVectors& queries, std::int64_t row, const Quantization& quantization) {
  return quantize_query(queries.tokens_of(row), queries.weights_of(row), quantization);
}

}  // namespace tessera::index
