#include <thread>

#include "kernels/cpu/instruction_set.h"
#include "src/index/index.h"
#include "tests/index/brute_force.h"
#include "tests/index/temporary_index.h"

namespace tessera::index {
namespace {

class Search : public IndexTest {
 protected:
  Index build(const SparseVectors& documents, BuildSettings settings) {
    settings.overwrite = true;
    build_index(folder_, documents, settings);
    return Index(folder_);
  }

  /// Compares the results of all queries, for several values of k, with those of a brute-force search.
  static void expect_exact(const Index& index, const SparseVectors& documents, const SparseVectors& queries,
                           const Filter& filter = {}, const std::vector<bool>& removed = {}) {
    for (std::int64_t q = 0; q < queries.rows(); ++q) {
      const QuantizedQuery query = query_of(queries, q, index.quantization());
      const std::vector<Hit> expected = brute_force(documents, query, index.quantization(), filter, removed);
      for (const std::int64_t k : {std::int64_t{1}, std::int64_t{3}, std::int64_t{10}, 2 * documents.rows() + 1}) {
        SCOPED_TRACE(concat("query ", q, ", k ", k));
        expect_same_hits(index.search(query, k, filter).best, expected, k);
      }
    }
  }
};

TEST_F(Search, EqualsBruteForce) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    for (const int bits : {8, 16}) {
      const RandomVectors shape{
          .rows = 40 + 97 * static_cast<std::int64_t>(seed), .vocab_size = seed % 2 == 0 ? 30 : 700, .most_tokens = 25};
      SCOPED_TRACE(concat("seed ", seed, ", ", bits, " bits"));
      const SparseVectors documents = random_vectors(shape, seed);
      const Index index = build(documents, {.impact_bits = bits, .window = 64 << (seed % 4), .threads = 2});
      expect_exact(index, documents,
                   random_vectors({.rows = 6, .vocab_size = shape.vocab_size, .most_tokens = 20}, 100 + seed));
    }
  }
}

TEST_F(Search, TiesGoToTheLowerDocumentNumber) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const SparseVectors documents =
        random_vectors({.rows = 500, .vocab_size = 12, .most_tokens = 5, .weights = 2}, seed);
    const Index index = build(documents, {.window = 128});
    expect_exact(index, documents,
                 random_vectors({.rows = 5, .vocab_size = 12, .most_tokens = 4, .weights = 1}, 50 + seed));
  }
}

TEST_F(Search, EveryInstructionSetFindsTheSame) {
  const SparseVectors documents = random_vectors({.rows = 3000, .vocab_size = 200, .most_tokens = 60}, 3);
  const SparseVectors queries = random_vectors({.rows = 8, .vocab_size = 200, .most_tokens = 20}, 4);
  for (const int bits : {8, 16}) {
    const Index index = build(documents, {.impact_bits = bits, .window = 1024});
    for (const char* set : {"portable", "avx2", "avx512"}) {
      SCOPED_TRACE(set);
      if (kernels::use_instruction_set(set)) expect_exact(index, documents, queries);
      kernels::use_instruction_set("");
    }
  }
}

TEST_F(Search, FullWindowsOfTheLargestSizeAreExact) {
  const SparseVectors documents = random_vectors({.rows = 65'536 + 70, .vocab_size = 300, .most_tokens = 8}, 1);
  const Index index = build(documents, {.threads = 2});
  const SparseVectors queries = random_vectors({.rows = 2, .vocab_size = 300, .most_tokens = 10}, 2);
  for (std::int64_t q = 0; q < queries.rows(); ++q) {
    const QuantizedQuery query = query_of(queries, q, index.quantization());
    expect_same_hits(index.search(query, 10).best, brute_force(documents, query, index.quantization()), 10);
  }
}

TEST_F(Search, FiltersExcludeDocuments) {
  const SparseVectors documents = random_vectors({.rows = 700, .vocab_size = 40, .most_tokens = 15}, 5);
  const SparseVectors queries = random_vectors({.rows = 4, .vocab_size = 40, .most_tokens = 10}, 6);
  const Index index = build(documents, {.window = 192});
  expect_exact(index, documents, queries, {.must = {0, 3}});
  expect_exact(index, documents, queries, {.must_not = {0, 1}});
  expect_exact(index, documents, queries, {.should = {5, 30, 39}});
  expect_exact(index, documents, queries, {.must = {1}, .must_not = {2}, .should = {0, 7}});
  expect_exact(index, documents, queries, {.documents = {0, 5, 190, 191, 192, 333, 699}, .only_documents = true});
  expect_exact(index, documents, queries, {.must = {0}, .documents = {}, .only_documents = true});
}

TEST_F(Search, EmptyDocumentsAreNotFoundAndEmptyQueriesFindNothing) {
  SparseVectors documents{4};
  append_row(documents, "empty", {}, "test");
  append_row(documents, "full", {{1, 1.0F}}, "test");
  append_row(documents, "too small", {{2, 1e-6F}}, "test");
  const Index index = build(documents, {});
  EXPECT_EQ(index.documents(), 3);
  const std::vector<std::int32_t> tokens = {0, 1, 2};
  const std::vector<float> weights = {1, 1, 1};
  const Hits hits = index.search(quantize_query(tokens, weights, index.quantization()), 10);
  ASSERT_EQ(hits.best.size(), 1U);
  EXPECT_EQ(index.id(hits.best[0].document), "full");
  EXPECT_FLOAT_EQ(hits.best[0].score, 1.0F);
  EXPECT_TRUE(index.search(QuantizedQuery{}, 10).best.empty());

  const Index nothing = build(SparseVectors{4}, {});
  EXPECT_EQ(nothing.documents(), 0);
  EXPECT_TRUE(nothing.search(quantize_query(tokens, weights, nothing.quantization()), 3).best.empty());
}

TEST_F(Search, ScoresAreProductsOfRoundedWeightsAndCosinesAtUnitLength) {
  const SparseVectors documents = random_vectors({.rows = 50, .vocab_size = 40, .most_tokens = 20}, 8);
  const SparseVectors queries = random_vectors({.rows = 10, .vocab_size = 40, .most_tokens = 20}, 9);
  for (const bool unit : {false, true}) {
    const Index index = build(documents, {.impact_bits = 16, .unit_length = unit});
    for (std::int64_t q = 0; q < queries.rows(); ++q) {
      for (const Hit& hit : index.search(query_of(queries, q, index.quantization()), 50).best) {
        std::map<std::int32_t, double> row;
        double product = 0, squares = 0, of_query = 0;
        for (std::size_t i = 0; i < documents.tokens_of(hit.document).size(); ++i) {
          row[documents.tokens_of(hit.document)[i]] = documents.weights_of(hit.document)[i];
          squares += std::pow(documents.weights_of(hit.document)[i], 2);
        }
        for (std::size_t i = 0; i < queries.tokens_of(q).size(); ++i) {
          product += row[queries.tokens_of(q)[i]] * queries.weights_of(q)[i];
          of_query += std::pow(queries.weights_of(q)[i], 2);
        }
        const double expected = unit ? product / std::sqrt(squares * of_query) : product;
        EXPECT_NEAR(hit.score, expected, 0.01 * std::max(1.0, expected));
      }
    }
  }
}

TEST_F(Search, SumsOfLongQueriesDoNotOverflow) {
  constexpr std::int32_t kTokens = 3000;
  SparseVectors documents{kTokens};
  std::vector<TokenWeight> row;
  for (std::int32_t t = 0; t < kTokens; ++t) row.push_back({t, 1});
  append_row(documents, "all", row, "test");
  const Index index = build(documents, {.impact_bits = 16});
  const QuantizedQuery query = query_of(documents, 0, index.quantization());
  const Hits hits = index.search(query, 1);
  ASSERT_EQ(hits.best.size(), 1U);
  expect_same_hits(hits.best, brute_force(documents, query, index.quantization()), 1);
  EXPECT_NEAR(hits.best[0].score, kTokens, 0.03 * kTokens);
}

TEST_F(Search, WindowsThatCannotHoldABetterDocumentAreSkipped) {
  SparseVectors documents{2};
  for (int d = 0; d < 64 * 8; ++d) append_row(documents, std::to_string(d), {{0, d < 64 ? 2.0F : 1.0F}}, "test");
  const Index index = build(documents, {.window = 64});
  const std::vector<std::int32_t> tokens = {0};
  const std::vector<float> weights = {1};
  EXPECT_EQ(index.search(quantize_query(tokens, weights, index.quantization()), 5).windows_skipped, 7);
}

TEST_F(Search, SeveralThreadsFindWhatOneFinds) {
  const SparseVectors documents = random_vectors({.rows = 900, .vocab_size = 60, .most_tokens = 20}, 10);
  const SparseVectors queries = random_vectors({.rows = 40, .vocab_size = 60, .most_tokens = 12}, 11);
  const Index index = build(documents, {.window = 256});
  const std::vector<Hits> one = search_all(index, queries, 7, {}, 1), four = search_all(index, queries, 7, {}, 4);
  for (std::size_t q = 0; q < one.size(); ++q) expect_same_hits(four[q].best, one[q].best, 7);
}

TEST_F(Search, InvalidArgumentsAreReported) {
  const Index index = build(random_vectors({.rows = 5, .vocab_size = 20}, 1), {});
  EXPECT_EQ(error_of([&] { index.search({}, 0); }), "k = 0: expected at least 1");
  EXPECT_EQ(error_of([&] { index.search({{20}, {1}}, 1); }), "token 20 is outside the index's vocabulary of 20");
  EXPECT_EQ(error_of([&] { index.search({}, 1, {.must = {-1}}); }), "token -1 is outside the index's vocabulary of 20");
  const std::vector<std::string> ids = {"d1", "d9"};
  EXPECT_EQ(error_of([&] { index.find(ids); }), "there is no document d9 in the index");
}

}  // namespace
}  // namespace tessera::index
