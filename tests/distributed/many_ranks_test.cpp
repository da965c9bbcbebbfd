// Measures how a job of many ranks starts, agrees and reports a lost rank. The ranks are processes on this machine. Set
// TESSERA_MANY_RANKS="64 256" to run it: it takes about half a minute, so the usual test run skips it.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <sstream>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "src/base/clock.h"
#include "src/distributed/agreement.h"
#include "src/distributed/connection.h"
#include "src/distributed/heartbeat.h"
#include <tessera/base/text.h>
#include <tessera/distributed/spawn.h>

namespace tessera {
namespace {

constexpr int kAgreements = 50;
constexpr double kQuietSeconds = 5;

// What one rank has measured, in memory that all processes share.
struct Measured {
  double connected = 0, agreed = 0;        // seconds since the ranks were started
  double agreement = 0;                    // seconds per agreement
  double started = 0, quiet = 0, failed = 0;  // requests to the store: until the first agreement, per second of work, and after the loss
  double reported = 0, ended = 0;          // seconds between the loss and this rank's explanation, and its end
  bool named = false;                      // whether the explanation names the lost rank
};

class SharedMemory {
 public:
  explicit SharedMemory(int ranks) : size_(sizeof(Measured) * static_cast<std::size_t>(ranks) + sizeof(double)) {
    memory_ = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  }
  ~SharedMemory() { ::munmap(memory_, size_); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  double& lost_at() { return *static_cast<double*>(memory_); }
  Measured& of(int rank) { return reinterpret_cast<Measured*>(static_cast<char*>(memory_) + sizeof(double))[rank]; }

 private:
  std::size_t size_;
  void* memory_;
};

void agree(const ProcessGroup& group) {
  Agreement(group, "the test", nullptr, {group.rank()}).check();
}

// What rank `rank` does. The rank `lost` exits between two agreements, without a word to the others.
void live(const LaunchEnvironment& place, int lost, double begin, SharedMemory& shared) {
  at::set_num_threads(1);
  Measured& own = shared.of(place.rank);
  const ProcessGroup group = ProcessGroup::connect(place, {.timeout = 300}, at::kCPU);
  own.connected = steady_seconds() - begin;
  Heartbeat heartbeat(group, 60);
  heartbeat.enter("the test", 0);
  agree(group);
  own.agreed = steady_seconds() - begin;
  own.started = static_cast<double>(store_requests());
  const double first = steady_seconds();
  for (int i = 0; i < kAgreements; ++i) agree(group);
  own.agreement = (steady_seconds() - first) / kAgreements;
  const std::int64_t before = store_requests();
  std::this_thread::sleep_for(std::chrono::duration<double>(kQuietSeconds));
  own.quiet = static_cast<double>(store_requests() - before) / kQuietSeconds;
  const std::int64_t at_loss = store_requests();
  if (place.rank == lost) {
    shared.lost_at() = steady_seconds();
    ::_exit(0);
  }
  try {
    agree(group);
  } catch (const std::exception&) {  // Gloo's errors are not c10::Error
    own.named = heartbeat.explain().starts_with(concat("lost: rank ", lost, " on "));
    own.reported = steady_seconds() - shared.lost_at();
    own.failed = static_cast<double>(store_requests() - at_loss);
  }
  own.ended = steady_seconds() - shared.lost_at();
  ::_exit(0);  // as the launcher ends the ranks: without waiting for each other
}

void measure(int ranks) {
  SharedMemory shared(ranks);
  ReservedPort port;
  const int lost = ranks / 2;
  const double begin = steady_seconds();
  std::vector<pid_t> children;
  std::cout << std::flush;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        live({.rank = rank, .size = ranks, .local_rank = rank, .address = "127.0.0.1", .port = port.number(), .socket = port.socket()}, lost,
             begin, shared);
      } catch (const std::exception& error) {
        std::cerr << concat("rank ", rank, ": ", error.what(), "\n") << std::flush;
        ::_exit(1);
      }
    }
    children.push_back(child);
    port.close();
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  const auto range = [&](double Measured::*member) {
    std::vector<double> values;
    for (int rank = 0; rank < ranks; ++rank)
      if (rank != lost) values.push_back(shared.of(rank).*member);
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    return concat(*least, " to ", *most);
  };
  int named = 0;
  for (int rank = 0; rank < ranks; ++rank) named += shared.of(rank).named ? 1 : 0;
  std::cout << ranks << " ranks: connected after " << range(&Measured::connected) << " s, first agreement after " << range(&Measured::agreed)
            << " s, an agreement takes " << range(&Measured::agreement) << " s; requests until then " << range(&Measured::started)
            << ", per second of work " << range(&Measured::quiet) << ", at the loss " << range(&Measured::failed)
            << "; reported " << range(&Measured::reported) << " s after the loss, ended " << range(&Measured::ended) << " s after it; " << named
            << " ranks name the lost one\n";
  EXPECT_EQ(named, ranks - 1);
  for (int rank = 0; rank < ranks; ++rank) EXPECT_LE(shared.of(rank).started, 24) << rank;
}

TEST(ManyRanks, StartAgreeAndReportALostRank) {
  const char* numbers = std::getenv("TESSERA_MANY_RANKS");
  if (numbers == nullptr) GTEST_SKIP() << "set TESSERA_MANY_RANKS=\"64 256\" to measure jobs of so many ranks";
  std::istringstream words(numbers);
  for (int ranks = 0; words >> ranks;) measure(ranks);
}

}  // namespace
}  // namespace tessera
