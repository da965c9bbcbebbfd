#include "src/data/tokenizers/word_table.h"

#include <map>

#include <gtest/gtest.h>

#include <tessera/base/random.h>

namespace tessera {
namespace {

TEST(WordTable, FindsTheSameAsAMap) {
  Random random(3, Purpose::shapes);
  const auto word = [&] {
    std::string out(static_cast<std::size_t>(random.below(20)), ' ');
    for (char& c : out) c = "ab\0\xFF"[random.below(4)];
    return out;
  };
  WordTable table;
  std::map<std::string, std::int32_t> map;
  for (std::int32_t id = 0; id < 5000; ++id) {
    const std::string each = word();
    table.insert(each, id);
    map[each] = id;
  }
  for (int i = 0; i < 20'000; ++i) {
    const std::string each = word();
    const auto found = map.find(each);
    EXPECT_EQ(table.find(each), found == map.end() ? WordTable::none : found->second);
  }
  EXPECT_EQ(table.longest(), 19u);
}

// The table stores a word in one of three ways, depending on the word's length: up to 8, 9 to 15, or more than 15 bytes.
TEST(WordTable, DistinguishesKeysOfAdjacentLengths) {
  WordTable table;
  const std::string zeros(17, '\0');
  for (std::int32_t n = 0; n <= 17; ++n)
    table.insert(std::string_view(zeros).substr(0, static_cast<std::size_t>(n)), n);
  for (std::int32_t n = 0; n <= 17; ++n)
    EXPECT_EQ(table.find(std::string_view(zeros).substr(0, static_cast<std::size_t>(n))), n);
}

}  // namespace
}  // namespace tessera
