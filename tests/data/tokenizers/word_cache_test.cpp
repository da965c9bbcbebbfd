#include "src/data/tokenizers/json/word_cache.h"

#include <string>

#include <gtest/gtest.h>

namespace tessera::json_tokenizer {
namespace {

// Many more words than the cache has slots, so that some share one.
constexpr int kMany = 200'000;

std::string word_of(int number) {
  const std::string digits = std::to_string(number);
  return std::string(8, 'w') + digits + std::string(number % 16, 'x');
}

TEST(WordCache, ReturnsTheStoredIds) {
  WordCache cache;
  const std::int64_t ids[] = {7, 8};
  cache.keep(WordCache::Key("word", 1), ids, 2);
  std::vector<std::int64_t> out = {5};
  EXPECT_TRUE(cache.find(WordCache::Key("word", 1), out));
  EXPECT_EQ(out, (std::vector<std::int64_t>{5, 7, 8}));
}

TEST(WordCache, DoesNotConfuseWordsThatShareASlot) {
  WordCache cache;
  std::vector<std::int64_t> out;
  for (int i = 0; i < kMany; ++i) {
    const std::string word = word_of(i);
    ASSERT_FALSE(cache.find(WordCache::Key(word, 1), out)) << word;
    const std::int64_t id = i;
    cache.keep(WordCache::Key(word, 1), &id, 1);
  }
}

TEST(WordCache, DoesNotFindAWordOfAnotherModel) {
  WordCache cache;
  const std::int64_t id = 7;
  std::vector<std::int64_t> out;
  cache.keep(WordCache::Key("word", 1), &id, 1);
  for (std::uint32_t model = 2; model < kMany; ++model) ASSERT_FALSE(cache.find(WordCache::Key("word", model), out)) << model;
}

TEST(WordCache, DoesNotConfuseAWordWithOneThatEndsInZeros) {
  WordCache cache;
  const std::int64_t id = 7;
  std::vector<std::int64_t> out;
  for (int i = 0; i < kMany; ++i) {
    const std::string word = std::to_string(i), longer = word + std::string(1, '\0');
    cache.keep(WordCache::Key(word, 1), &id, 1);
    ASSERT_FALSE(cache.find(WordCache::Key(longer, 1), out)) << word;
  }
}

TEST(WordCache, DoesNotStoreAWordWithTooManyIds) {
  WordCache cache;
  const std::vector<std::int64_t> ids(WordCache::most_ids + 1, 7);
  std::vector<std::int64_t> out;
  cache.keep(WordCache::Key("word", 1), ids.data(), ids.size());
  EXPECT_FALSE(cache.find(WordCache::Key("word", 1), out));
}

}  // namespace
}  // namespace tessera::json_tokenizer
