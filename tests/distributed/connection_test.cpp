#include "src/distributed/connection.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "src/base/host.h"
#include "tests/support/error_of.h"

namespace tessera {
namespace {

using Events = std::vector<std::string>;

class DoneWork : public c10d::Work {
 public:
  bool wait(std::chrono::milliseconds) override { return true; }
};

// A backend that records its calls. With `others_gone`, it fails as if the other ranks had exited.
class RecordingBackend : public c10d::Backend {
 public:
  RecordingBackend(Events& events, bool others_gone) : Backend(0, 2), events_(events), others_gone_(others_gone) {}
  const std::string getBackendName() const override { return "recording"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>&, const c10d::AllreduceOptions& options) override {
    events_.emplace_back(options.timeout == std::chrono::seconds(30) ? "meet" : "meet for another time");
    TORCH_CHECK(!others_gone_, "connection closed by peer");
    return c10::make_intrusive<DoneWork>();
  }
  void shutdown() override { events_.emplace_back("shutdown"); }

 private:
  Events& events_;
  bool others_gone_;
};

ProcessGroup recording_group(Events& events, bool others_gone = false) {
  const auto connection = std::make_shared<ProcessGroup::Connection>();
  connection->environment.size = 2;
  connection->group = c10::make_intrusive<c10d::ProcessGroup>(0, 2);
  connection->group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM,
                                BackendPointer(c10::make_intrusive<RecordingBackend>(events, others_gone)));
  return ProcessGroup::Connection::as_group(connection);
}

TEST(Connection, ShutsDownOnceAllRanksHaveFinished) {
  Events events;
  {
    const ProcessGroup group = recording_group(events);
    const ProcessGroup copy = group;
  }
  EXPECT_EQ(events, (Events{"meet", "shutdown"}));
}

TEST(Connection, DoesNotWaitForOthersDuringAnError) {
  Events events;
  try {
    const ProcessGroup group = recording_group(events);
    user_error("no data");
  } catch (const UserError&) {
    events.emplace_back("caught");
  }
  EXPECT_EQ(events, Events{"caught"});
}

TEST(Connection, IgnoresRanksThatHaveExitedAtTheEnd) {
  Events events;
  { const ProcessGroup group = recording_group(events, /*others_gone=*/true); }
  EXPECT_EQ(events, Events{"meet"});
}

TEST(Gpus, RejectsTheSecondRankOnAGpu) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  LaunchEnvironment environment;
  environment.size = 3;
  claim_gpu(*store, "host/0:1:0", environment);
  environment.rank = environment.local_rank = 1;
  claim_gpu(*store, "host/0:2:0", environment);
  environment.rank = environment.local_rank = 2;
  EXPECT_EQ(error_of([&] { claim_gpu(*store, "host/0:2:0", environment); }),
            "rank 2 (local rank 2) has the same GPU as another rank: start at most one process per GPU, or set "
            "training.device to cpu");
}

TEST(Gpus, BelongToAMachineThatItsNameAloneDoesNotIdentify) {
  EXPECT_TRUE(machine_name().starts_with(host_name() + "/"));
  EXPECT_EQ(machine_name().size(), host_name().size() + 37);  // the boot's identifier has 36 characters
}

TEST(Gpus, AreFreeAgainAfterARestart) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  LaunchEnvironment environment;
  for (environment.attempt = 0; environment.attempt < 2; ++environment.attempt)
    claim_gpu(*store_of_attempt(store, environment), "host/0:1:0", environment);
}

}  // namespace
}  // namespace tessera
