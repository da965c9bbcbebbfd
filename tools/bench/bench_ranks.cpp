// tessera-bench ranks: what many ranks ask of the store in which they meet. The ranks are small processes without a model.
#include <algorithm>
#include <array>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "src/base/clock.h"
#include "src/distributed/agreement.h"
#include "src/distributed/connection.h"
#include "src/distributed/heartbeat.h"
#include "tools/bench/data_benchmarks.h"
#include "tools/command_line.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/distributed/spawn.h>

namespace tessera::tools {
namespace {

constexpr int kAgreements = 20;
constexpr int kWatched = 4;  // seconds for which the heartbeat's requests are counted

struct RanksOptions {
  int ranks = 64;
  double timeout = 300;
};

// What a rank measured. Each rank writes its report into a pipe at once, so reports do not mix.
struct RankReport {
  double start = 0, agreement = 0, failure = 0;  // seconds
  std::int64_t of_start = 0, of_watch = 0, of_failure = 0;  // requests
  std::array<char, 256> line{};
};
static_assert(sizeof(RankReport) < 512);

struct Pipe {
  Pipe() {
    if (::pipe(ends.data()) != 0) user_error("tessera-bench ranks: cannot make a pipe: ", std::strerror(errno));
  }
  void close(int end) { ::close(std::exchange(ends.at(static_cast<std::size_t>(end)), -1)); }
  std::array<int, 2> ends{};
};

void meet(const ProcessGroup& group) {
  at::Tensor nothing = at::zeros({1});
  group.all_reduce(nothing);
}

RankReport measure(const LaunchEnvironment& place, double timeout) {
  RankReport out;
  const double begin = steady_seconds();
  const ProcessGroup group = ProcessGroup::connect(place, {.backend = "gloo", .timeout = timeout}, at::kCPU);
  Heartbeat heartbeat(group, timeout);
  heartbeat.enter("the benchmark", 1);
  meet(group);
  out.start = steady_seconds() - begin;
  out.of_start = store_requests();
  const double agreeing = steady_seconds();
  for (int i = 0; i < kAgreements; ++i) Agreement(group, "agreeing", {}, {i}).check();
  out.agreement = (steady_seconds() - agreeing) / kAgreements;
  const std::int64_t watched = store_requests();
  std::this_thread::sleep_for(std::chrono::seconds(kWatched));
  out.of_watch = store_requests() - watched;
  meet(group);
  if (place.rank == place.size / 2) ::_exit(0);  // without a word to the others
  const double failed = steady_seconds();
  const std::int64_t before = store_requests();
  try {
    while (true) meet(group);
  } catch (const std::exception&) {
    const std::string line = heartbeat.explain();
    line.copy(out.line.data(), out.line.size() - 1);
  }
  out.failure = steady_seconds() - failed;
  out.of_failure = store_requests() - before;
  return out;
}

[[noreturn]] void live(const LaunchEnvironment& place, double timeout, Pipe& reports, Pipe& end) {
  at::set_num_threads(1);
  end.close(1);
  try {
    const RankReport report = measure(place, timeout);
    if (::write(reports.ends[1], &report, sizeof report) != sizeof report) ::_exit(1);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    std::cerr << concat("rank ", place.rank, ": ", text.substr(0, text.find('\n')), "\n");
    ::_exit(1);
  }
  reports.close(1);
  // Rank 0 has the store, which the others still need. They must exit, because each rank notices the failure when a neighbor has left.
  char nothing = 0;
  if (place.rank == 0 && ::read(end.ends[0], &nothing, 1) != 0) ::_exit(1);
  ::_exit(0);
}

std::string to_markdown(int ranks, const std::vector<RankReport>& reports) {
  const auto greatest = [&](auto member) { return std::ranges::max(reports, {}, member).*member; };
  const auto sum = [&](auto member) {
    std::int64_t all = 0;
    for (const RankReport& report : reports) all += report.*member;
    return all;
  };
  const double first = std::ranges::min(reports, {}, &RankReport::failure).failure;
  const auto requests = [&](auto member, int seconds) {
    return concat(with_thousands(greatest(member) / seconds), " | ", with_thousands(sum(member) / seconds), " | ");
  };
  return concat("| ranks | start, s | agreement, ms | report of a lost rank, s (first, last) | requests at the start: per rank | all "
                "| per second: per rank | all | at the failure: per rank | all |\n|", [] {
                  std::string out;
                  for (int i = 0; i < 10; ++i) out += " --- |";
                  return out;
                }(),
                "\n| ", ranks, " | ", fixed(greatest(&RankReport::start), 1), " | ", fixed(1e3 * greatest(&RankReport::agreement), 1), " | ",
                fixed(first, 1), ", ", fixed(greatest(&RankReport::failure), 1), " | ", requests(&RankReport::of_start, 1),
                requests(&RankReport::of_watch, kWatched), requests(&RankReport::of_failure, 1), "\n");
}

int run_ranks(const RanksOptions& options) {
  Pipe reports, end;
  const int port = free_port();
  std::vector<pid_t> children;
  for (int rank = 0; rank < options.ranks; ++rank) {
    const pid_t child = ::fork();
    if (child < 0) user_error("tessera-bench ranks: cannot start process ", rank, ": ", std::strerror(errno));
    if (child == 0) live({rank, options.ranks, rank, "127.0.0.1", port}, options.timeout, reports, end);
    children.push_back(child);
  }
  reports.close(1);
  std::vector<RankReport> all;
  // All ranks but the lost one report. The pipe ends earlier if a rank fails.
  for (RankReport report; std::ssize(all) < options.ranks - 1 && ::read(reports.ends[0], &report, sizeof report) == sizeof report;)
    all.push_back(report);
  end.close(1);
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  if (std::ssize(all) < options.ranks - 1) user_error("tessera-bench ranks: only ", all.size(), " of ", options.ranks - 1, " ranks have reported");
  std::map<std::string, int> lines;
  for (const RankReport& report : all) ++lines[report.line.data()];
  std::cout << to_markdown(options.ranks, all) << "\n";
  for (const auto& [line, count] : lines) std::cout << count << " ranks say: " << line << "\n";
  return 0;
}

}  // namespace

std::function<int()> add_ranks_benchmark(CLI::App& command) {
  auto options = std::make_shared<RanksOptions>();
  command.option_defaults()->take_last();
  add_default(command, "--ranks", options->ranks, "number of processes that this program starts")->check(CLI::Range(3, 4096));
  add_default(command, "--timeout", options->timeout, "seconds that a process waits for the others")->check(positive_number());
  command.footer(
      "Starts small processes that meet, agree and report to each other as the ranks of a run do, then ends one of them without a\n"
      "word, and counts the requests to the store of rank 0.\n\n"
      "  tessera-bench ranks --ranks 64");
  return [options] { return run_ranks(*options); };
}

}  // namespace tessera::tools
