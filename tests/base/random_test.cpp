#include <set>

#include <gtest/gtest.h>

#include <tessera/base/random.h>

namespace tessera {
namespace {

TEST(Random, StreamDependsOnlyOnItsKey) {
  Random a(7, Purpose::crop, {1, 2});
  Random b(7, Purpose::crop, {1, 2});
  for (int i = 0; i < 100; ++i) EXPECT_EQ(a.next(), b.next());
}

TEST(Random, AnyChangeOfTheKeyChangesTheStream) {
  std::set<std::uint32_t> first = {Random(7, Purpose::crop, {1, 2}).next(), Random(8, Purpose::crop, {1, 2}).next(),
                                   Random(7, Purpose::flip, {1, 2}).next(), Random(7, Purpose::crop, {2, 1}).next(),
                                   Random(7, Purpose::crop, {1}).next()};
  EXPECT_EQ(first.size(), 5U);
}

TEST(Random, BelowIsUniform) {
  Random random(1, Purpose::shuffle);
  std::array<int, 7> counts{};
  for (int i = 0; i < 70000; ++i) ++counts[static_cast<std::size_t>(random.below(7))];
  for (int count : counts) EXPECT_NEAR(count, 10000, 400);
}

}  // namespace
}  // namespace tessera
