// Tests what ranks learn from each other's reports, and how often they ask the store for it.
#include "src/distributed/heartbeat.h"

#include <optional>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/base/host.h"
#include "src/distributed/connection.h"
#include "tests/distributed/ranks.h"
#include <tessera/base/text.h>

namespace tessera {
namespace {

at::Tensor text_tensor(const std::string& text) {
  return at::tensor(std::vector<std::uint8_t>(text.begin(), text.end()), at::kByte);
}

std::string text_of(const at::Tensor& tensor) {
  const auto* begin = tensor.const_data_ptr<std::uint8_t>();
  return {begin, begin + tensor.numel()};
}

at::Tensor count(std::int64_t number) {
  return at::full({1}, number, at::kLong);
}

// Returns each rank's explanation, and the requests that it made for its start and for the explanation. The rank `leaving` (-1: none)
// leaves before. Rank 1 is in an earlier step than the others.
std::vector<Tensors> explained(int ranks, int leaving) {
  return run_ranks(ranks, [leaving](const ProcessGroup& group) -> Tensors {
    std::optional<Heartbeat> heartbeat(std::in_place, group, 60);
    heartbeat->enter("the test", group.rank() == 1 ? 3 : 4);
    at::Tensor one = at::ones({1});
    group.all_reduce(one);
    const std::int64_t start = store_requests();
    std::string text;
    if (group.rank() == leaving)
      heartbeat.reset();
    else
      text = heartbeat->explain();
    const std::int64_t asked = store_requests() - start;
    group.all_reduce(one);
    return {{"text", text_tensor(text)}, {"start", count(start)}, {"asked", count(asked)}};
  });
}

TEST(HeartbeatTest, ExplainsTheSameOnAllRanks) {
  const std::string host = host_name();
  for (const Tensors& rank : explained(4, -1))
    EXPECT_TRUE(text_of(rank.at("text")).starts_with(concat("all ranks are alive; furthest behind: rank 1 on ", host, ", in the test of step 3 for ")))
        << text_of(rank.at("text"));
  const std::vector<Tensors> left = explained(4, 2);
  for (const std::size_t rank : {0, 1, 3}) {
    const std::string text = text_of(left[rank].at("text"));
    EXPECT_EQ(text, concat("lost: rank 2 on ", host, ", in the test of step 4"));
  }
}

// The reports that threads send every second are among the requests.
TEST(HeartbeatTest, RequestsPerRankDoNotGrowWithTheRanks) {
  for (const int ranks : {4, 16})
    for (const Tensors& rank : explained(ranks, -1)) {
      EXPECT_LE(rank.at("start").item<std::int64_t>(), 24) << ranks;
      EXPECT_LE(rank.at("asked").item<std::int64_t>(), 32) << ranks;
    }
}

}  // namespace
}  // namespace tessera
