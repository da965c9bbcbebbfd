// Tests the order of samples for sources that must read their samples in whole groups.

#include "src/data/loading/sampler.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

namespace tessera {
namespace {

using Order = std::vector<std::int64_t>;

const EntryGroups kGroups{{0, 10, 17, 18, 30, 42, 50, 61, 70, 80}, 4};

Mixing mixing_of(MixtureMode mode, const std::vector<std::int64_t>& sizes, double weight = 1) {
  Mixing out{mode, {}};
  std::int64_t first = 0;
  for (const std::int64_t size : sizes) {
    out.components.push_back({std::to_string(first), "", first, size, out.components.empty() ? weight : 1, nullptr});
    first += size;
  }
  return out;
}

Order order_of(Sampler& sampler, std::int64_t epoch) {
  Order out;
  for (std::int64_t i = 0; i < sampler.places(); ++i) out.push_back(sampler.at({epoch, i}, 0).index);
  return out;
}

bool is_permutation(Order order, std::int64_t first, std::int64_t size) {
  Order all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), first);
  std::ranges::sort(order);
  return order == all;
}

std::int64_t group_of(std::int64_t entry) {
  return std::ranges::upper_bound(kGroups.starts, entry) - kGroups.starts.begin() - 1;
}

// Returns the largest number of groups that are open (started but not finished) at any one time.
std::size_t most_open(const Order& order) {
  std::map<std::int64_t, std::int64_t> left;
  std::set<std::int64_t> open;
  std::size_t most = 0;
  for (const std::int64_t entry : order) {
    const std::int64_t group = group_of(entry), size = kGroups.starts[static_cast<std::size_t>(group) + 1] -
                                                       kGroups.starts[static_cast<std::size_t>(group)];
    open.insert(group);
    most = std::max(most, open.size());
    if (++left[group] == size) open.erase(group);
  }
  return most;
}

TEST(GroupedOrder, IsAPermutationWithFewOpenGroupsThatDiffersEachEpoch) {
  Sampler sampler(mixing_of(MixtureMode::concat, {80}), true, 3, {}, {kGroups});
  std::set<Order> orders;
  for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
    const Order order = order_of(sampler, epoch);
    EXPECT_TRUE(is_permutation(order, 0, 80));
    EXPECT_LE(most_open(order), 4U);
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 4U);
  Sampler free(mixing_of(MixtureMode::concat, {80}), true, 3, {});
  EXPECT_GT(most_open(order_of(free, 0)), 6U) << "without groups, most are open at once";
}

TEST(GroupedOrder, RanksReadDifferentGroupsAndTogetherTheWholeEpoch) {
  Sampler whole(mixing_of(MixtureMode::concat, {80}), true, 3, {}, {kGroups});
  const Order all = order_of(whole, 1);
  std::array<std::set<std::int64_t>, 2> groups;
  Order together(80);
  for (int rank = 0; rank < 2; ++rank) {
    Sampler half(mixing_of(MixtureMode::concat, {80}), true, 3, {rank, 2}, {kGroups});
    const Order own = order_of(half, 1);
    for (std::size_t i = 0; i < own.size(); ++i) {
      together[2 * i + static_cast<std::size_t>(rank)] = own[i];
      if (i < 20) groups[static_cast<std::size_t>(rank)].insert(group_of(own[i]));
    }
  }
  EXPECT_EQ(together, all);
  for (const std::int64_t group : groups[0]) EXPECT_FALSE(groups[1].contains(group)) << group;
}

TEST(GroupedOrder, AMixtureKeepsTheOrderWithinAComponentAndInterleavesRandomly) {
  Sampler sampler(mixing_of(MixtureMode::concat, {80, 60}), true, 5, {}, {kGroups, {}});
  const Order order = order_of(sampler, 2);
  EXPECT_TRUE(is_permutation(order, 0, 140));
  Order own;
  std::int64_t changes = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i] < 80) own.push_back(order[i]);
    changes += i > 0 && (order[i] < 80) != (order[i - 1] < 80) ? 1 : 0;
  }
  EXPECT_LE(most_open(own), 4U);
  EXPECT_GT(changes, 30);
}

TEST(GroupedOrder, EveryMixtureModeReturnsEachSampleEquallyOften) {
  for (const MixtureMode mode : {MixtureMode::weighted, MixtureMode::sequential, MixtureMode::accumulate}) {
    Sampler sampler(mixing_of(mode, {80, 60}, mode == MixtureMode::weighted ? 1.5 : 1), true, 5, {}, {kGroups, {}});
    std::map<std::int64_t, int> times;
    for (std::int64_t epoch = 0; epoch < 2; ++epoch)
      for (const std::int64_t entry : order_of(sampler, epoch)) ++times[entry];
    for (std::int64_t entry = 0; entry < 80; ++entry)
      EXPECT_EQ(times[entry], mode == MixtureMode::weighted ? 3 : 2) << static_cast<int>(mode) << " " << entry;
  }
}

}  // namespace
}  // namespace tessera
