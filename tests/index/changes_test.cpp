#include <atomic>
#include <set>
#include <thread>

#include "tests/index/brute_force.h"
#include "tests/index/temporary_index.h"
#include <tessera/io/atomic_file.h>

namespace tessera::index {
namespace {

class Changes : public IndexTest {
 protected:
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
};

SparseVectors joined(SparseVectors a, const SparseVectors& b) {
  for (std::int64_t r = 0; r < b.rows(); ++r) {
    std::vector<TokenWeight> row;
    for (std::size_t i = 0; i < b.tokens_of(r).size(); ++i) row.push_back({b.tokens_of(r)[i], b.weights_of(r)[i]});
    append_row(a, b.ids[r], row, "test");
  }
  return a;
}

/// Returns the ids that a search found, best first.
std::vector<std::string> ids_of(const Index& index, const Hits& hits) {
  std::vector<std::string> ids;
  for (const Hit& hit : hits.best) ids.emplace_back(index.id(hit.document));
  return ids;
}

TEST_F(Changes, AdditionsAndRemovalsApplyAtOnceAndCompactionChangesNoResult) {
  const SparseVectors first = random_vectors({.rows = 300, .vocab_size = 40}, 1, "a");
  const SparseVectors second = random_vectors({.rows = 77, .vocab_size = 40}, 2, "b");
  const SparseVectors queries = random_vectors({.rows = 5, .vocab_size = 40}, 3);
  build_index(folder_, first, {.largest_weight = 2.5, .window = 128});
  EXPECT_EQ(add_documents(folder_, second).documents, 77);
  const SparseVectors all = joined(first, second);
  std::vector<bool> removed(static_cast<std::size_t>(all.rows()), false);
  std::vector<std::string> ids;
  for (std::int64_t r = 0; r < all.rows(); r += 3) {
    removed[r] = true;
    ids.push_back(all.ids[r]);
  }
  EXPECT_EQ(remove_documents(folder_, ids).documents, static_cast<std::int64_t>(ids.size()));

  const Index before(folder_);
  EXPECT_EQ(before.documents(), all.rows() - static_cast<std::int64_t>(ids.size()));
  EXPECT_EQ(before.segments(), 2);
  for (std::int64_t q = 0; q < queries.rows(); ++q) {
    const QuantizedQuery query = query_of(queries, q, before.quantization());
    expect_same_hits(before.search(query, 20).best, brute_force(all, query, before.quantization(), {}, removed), 20);
  }
  EXPECT_EQ(compact_index(folder_).documents, before.documents());
  const Index after(folder_);
  EXPECT_EQ(after.segments(), 1);
  EXPECT_EQ(after.document_numbers(), before.documents());
  EXPECT_LT(after.postings(), before.postings());
  for (std::int64_t q = 0; q < queries.rows(); ++q) {
    const QuantizedQuery query = query_of(queries, q, before.quantization());
    const Hits old = before.search(query, 500), now = after.search(query, 500);
    EXPECT_EQ(ids_of(after, now), ids_of(before, old));
    for (std::size_t i = 0; i < now.best.size(); ++i) EXPECT_EQ(now.best[i].product, old.best[i].product);
  }
  EXPECT_EQ(files(), (std::vector<std::string>{"lock", "manifest.json", "segment-000003"}));
}

TEST_F(Changes, AnIdBelongsToOneDocument) {
  const SparseVectors documents = random_vectors({.rows = 10, .vocab_size = 20}, 1);
  SparseVectors twice = documents;
  twice.ids[7] = "d2";
  EXPECT_EQ(error_of([&] { build_index(folder_, twice, {}); }), "the id d2 belongs to two documents, rows 2 and 7");
  build_index(folder_, documents, {});
  SparseVectors more{20};
  append_row(more, "new", {{1, 1}}, "test");
  append_row(more, "d4", {{19, 2}}, "test");
  EXPECT_EQ(error_of([&] { add_documents(folder_, more); }),
            "there is already a document d4; --replace replaces it by the new one");
  EXPECT_EQ(Index(folder_).documents(), 10);
  EXPECT_EQ(add_documents(folder_, more, /*replace=*/true).replaced, 1);
  const Index index(folder_);
  EXPECT_EQ(index.documents(), 11);
  const std::vector<std::string> ids = {"d4"};
  EXPECT_EQ(index.find(ids).front(), 11);
}

TEST_F(Changes, ARemovedIdCanBeAddedAgain) {
  build_index(folder_, random_vectors({.rows = 3, .vocab_size = 20}, 1), {});
  const std::vector<std::string> ids = {"d1"};
  remove_documents(folder_, ids);
  EXPECT_EQ(error_of([&] { remove_documents(folder_, ids); }),
            "there is no document d1 in the index; nothing was removed");
  EXPECT_EQ(remove_documents(folder_, ids, /*missing_ok=*/true).documents, 0);
  SparseVectors again{20};
  append_row(again, "d1", {{1, 1}}, "test");
  add_documents(folder_, again);
  EXPECT_EQ(Index(folder_).find(ids).front(), 3);
}

TEST_F(Changes, AnEmptyIndexCanBeFilledAndEmptied) {
  build_index(folder_, SparseVectors{20}, {.largest_weight = 3});
  const SparseVectors documents = random_vectors({.rows = 4, .vocab_size = 20}, 1);
  add_documents(folder_, documents);
  EXPECT_EQ(Index(folder_).documents(), 4);
  remove_documents(folder_, documents.ids);
  EXPECT_EQ(Index(folder_).documents(), 0);
  compact_index(folder_);
  EXPECT_EQ(Index(folder_).segments(), 0);
}

TEST_F(Changes, WeightsAboveTheLargestAreClippedAndCounted) {
  SparseVectors documents{3};
  append_row(documents, "a", {{0, 1.0F}}, "test");
  build_index(folder_, documents, {});
  SparseVectors more{3};
  append_row(more, "b", {{0, 5.0F}, {1, 0.5F}}, "test");
  EXPECT_EQ(add_documents(folder_, more).cut_weights, 1);
  const SparseVectors stored = Index(folder_).stored_vectors();
  EXPECT_EQ(stored.ids, (std::vector<std::string>{"a", "b"}));
  EXPECT_FLOAT_EQ(stored.weights_of(1)[0], 1.0F);
  EXPECT_NEAR(stored.weights_of(1)[1], 0.5, 0.002);
}

TEST_F(Changes, AnIndexIsReplacedOnlyWithOverwrite) {
  build_index(folder_, random_vectors({.rows = 3, .vocab_size = 20}, 1), {});
  const SparseVectors others = random_vectors({.rows = 5, .vocab_size = 30}, 2);
  EXPECT_EQ(error_of([&] { build_index(folder_, others, {}); }),
            folder_ + ": there is already an index; --overwrite replaces it");
  build_index(folder_, others, {.overwrite = true});
  EXPECT_EQ(Index(folder_).documents(), 5);
  EXPECT_EQ(files(), (std::vector<std::string>{"lock", "manifest.json", "segment-000002"}));
}

TEST_F(Changes, OnlyFilesThatAnIndexWritesAreRemoved) {
  for (const char* name : {"segment-a.jsonl", "segment-12", "vocabulary-bert.txt"}) write(name, "the user's");
  for (const char* name : {"segment-000077", "vocabulary-000007.txt.tmp.12", "manifest.json.tmp.12"}) write(name, "a killed writer's");
  build_index(folder_, random_vectors({.rows = 3, .vocab_size = 20}, 1), {});
  EXPECT_EQ(files(), (std::vector<std::string>{"lock", "manifest.json", "segment-000001", "segment-12", "segment-a.jsonl",
                                               "vocabulary-bert.txt"}));
}

TEST_F(Changes, AFolderWithoutAnIndexStaysEmpty) {
  const std::string expected = folder_ + ": there is no index (no manifest.json); tessera-index build makes one";
  EXPECT_EQ(error_of([&] { add_documents(folder_, random_vectors({.rows = 3, .vocab_size = 20}, 1)); }), expected);
  EXPECT_EQ(error_of([&] { remove_documents(folder_, std::vector<std::string>{"d1"}); }), expected);
  EXPECT_EQ(error_of([&] { compact_index(folder_); }), expected);
  EXPECT_EQ(files(), std::vector<std::string>());
}

TEST_F(Changes, NamesOfTokensAreKept) {
  build_index(folder_, random_vectors({.rows = 3, .vocab_size = 3}, 1),
              {.names = TokenNames("red\nblue\ncircle\n", "test")});
  EXPECT_EQ(Index(folder_).names().name(1), "blue");
  EXPECT_EQ(names_of(folder_).find("circle"), 2);
}

TEST_F(Changes, ALargerVocabularyIsRefused) {
  build_index(folder_, random_vectors({.rows = 3, .vocab_size = 20}, 1), {});
  EXPECT_EQ(error_of([&] { add_documents(folder_, random_vectors({.rows = 3, .vocab_size = 21}, 1, "e")); }),
            "the documents' vocabulary of 21 is larger than the index's, 20");
}

TEST_F(Changes, ReadersSeeAConsistentStateWhileAWriterChangesTheIndex) {
  const SparseVectors first = random_vectors({.rows = 60, .vocab_size = 20}, 1, "a");
  const SparseVectors second = random_vectors({.rows = 40, .vocab_size = 20}, 2, "b");
  build_index(folder_, first, {.largest_weight = 3, .window = 64});
  std::atomic<bool> done = false;
  std::vector<std::set<std::int64_t>> seen(3);
  std::vector<std::string> errors(3);
  std::vector<std::thread> readers;
  for (int r = 0; r < 3; ++r) {
    readers.emplace_back([&, r] {
      errors[r] = error_of([&] {
        do {
          const Index index(folder_, 1);
          seen[r].insert(index.documents());
          const QuantizedQuery query = query_of(first, 1, index.quantization());
          for (const Hit& hit : index.search(query, 5).best) static_cast<void>(index.id(hit.document));
        } while (!done);
      });
    });
  }
  for (int round = 0; round < 30; ++round) {
    add_documents(folder_, second, false, 1);
    compact_index(folder_, 1);
    remove_documents(folder_, second.ids, false, 1);
    compact_index(folder_, 1);
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(errors[r], "no error");
    for (const std::int64_t documents : seen[r]) EXPECT_TRUE(documents == 60 || documents == 100) << documents;
  }
}

TEST_F(Changes, AnOpenIndexIsNotAffectedByLaterChanges) {
  const SparseVectors documents = random_vectors({.rows = 60, .vocab_size = 20}, 1);
  build_index(folder_, documents, {});
  const Index opened(folder_);
  remove_documents(folder_, std::vector<std::string>(documents.ids.begin(), documents.ids.end() - 1));
  compact_index(folder_);
  EXPECT_EQ(Index(folder_).documents(), 1);
  const QuantizedQuery query = query_of(documents, 3, opened.quantization());
  expect_same_hits(opened.search(query, 60).best, brute_force(documents, query, opened.quantization()), 60);
}

}  // namespace
}  // namespace tessera::index
