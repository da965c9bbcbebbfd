#include "src/distributed/heartbeat.h"

#include <atomic>
#include <condition_variable>
#include <iostream>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/host.h"
#include "src/base/job_error.h"
#include "src/distributed/connection.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kInterval{1};
constexpr std::uint64_t kGone = 0;  // the count that a rank publishes when it leaves normally

// A rank's report: a count that grows from report to report, and the rank's place in the run.
struct Beat {
  std::uint64_t count = kGone;
  std::int64_t step = 0;
  double seconds = 0;  // time spent in the phase so far
  std::string host, phase;

  std::string text() const {
    return concat(count, ' ', step, ' ', seconds, ' ', host, ' ', phase);
  }
  static Beat parse(const std::vector<std::uint8_t>& bytes) {
    Beat out;
    std::istringstream in(std::string(bytes.begin(), bytes.end()));
    in >> out.count >> out.step >> out.seconds >> out.host >> std::ws;
    std::getline(in, out.phase);
    return out;
  }
  std::string place(int rank) const {
    return concat("rank ", rank, " on ", host, ", in ", phase, " of step ", step);
  }
};

std::string key_of(int rank) {
  return concat("heartbeat/", rank);
}

constexpr const char* kReaders = "explanation/readers";  // counts the ranks that wanted to explain a failure
constexpr const char* kExplanation = "explanation/text";
constexpr std::chrono::seconds kExplained{15};  // how long a rank waits for the explanation that another one writes

std::vector<std::uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

std::string text_of(const std::vector<std::uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

}  // namespace

struct Heartbeat::Impl {
  Impl(const ProcessGroup& group, double silence_seconds)
      : rank(group.rank()), size(group.size()), silence(silence_seconds), host(host_name()) {
    const LaunchEnvironment& place = group.connection()->environment;
    c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(place.port);
    options.waitWorkers = false;
    options.timeout = std::chrono::seconds(30);
    // Uses a separate connection, because the process group's connection may be blocked by an operation that waits.
    try {
      store = store_of_attempt(c10::make_intrusive<c10d::TCPStore>(place.address, options), place);
    } catch (const std::exception& error) {
      throw JobError(concat("rank ", rank, ": cannot reach the ranks' store at ", place.address, ":", place.port, ": ",
                            error.what()));
    }
    tell(++count);
    teller = std::thread([this] { tell_and_listen(); });
    watcher = std::thread([this] { watch(); });
  }

  // Stops the thread `watcher` last. If the thread `teller` hangs because the store no longer answers, `watcher` must
  // end the process.
  ~Impl() {
    stop(teller);
    try {
      tell(kGone);
    } catch (const std::exception&) {
      // Rank 0 has already left, and its store with it.
    }
    stop(watcher);
  }

  // Waits for the next rank's first report, which the next rank makes before its first step. The report contains the rank's host name. So
  // if the rank later stops reporting, the error message can include the host name.
  void hear_first() {
    try {
      store->wait({key_of(next)});
      const Beat beat = read(next);
      const std::lock_guard lock(mutex);
      last = beat;
      heard = Clock::now();
    } catch (const std::exception&) {
      // The next rank has not started yet or is already lost. The thread `watcher` measures how long the next rank has been silent.
    }
  }

  void tell_and_listen() {
    hear_first();
    std::unique_lock lock(mutex);
    while (!wake.wait_for(lock, kInterval, [this] { return leaving == &teller; })) {
      lock.unlock();
      try {
        tell(++count);
        std::optional<Beat> beat;
        if (last.count > kGone || store->check({key_of(next)})) beat = read(next);
        const std::string text = store->check({kExplanation}) ? text_of(store->get(kExplanation)) : "";
        lock.lock();
        if (!text.empty()) explanation = text;
        if (!beat || (beat->count == last.count && beat->count != kGone)) continue;
        last = *beat;
        heard = Clock::now();
      } catch (const std::exception&) {
        // Ignores the error. If rank 0's store stays unreachable, no reports arrive, and the thread `watcher` notices this.
        if (!lock.owns_lock()) lock.lock();
      }
    }
  }

  void watch() {
    std::unique_lock lock(mutex);
    while (!wake.wait_for(lock, kInterval, [this] { return leaving == &watcher; })) {
      if (seconds_since(heard) <= silence) continue;
      std::cerr << concat("trainer rank ", rank, ": no sign of life for ", silence, " s from ",
                          last.host.empty() ? concat("rank ", next) : last.place(next),
                          next == 0 || rank == 0 ? "" : ", or from rank 0, which keeps the ranks' store",
                          ": stopping; continue with --resume auto\n")
                << std::flush;
      ::_exit(1);
    }
  }

  void stop(std::thread& thread) {
    {
      const std::lock_guard lock(mutex);
      leaving = &thread;
    }
    wake.notify_all();
    thread.join();
  }

  void tell(std::uint64_t number) {
    Beat beat;
    beat.count = number;
    beat.host = host;
    {
      const std::lock_guard lock(place_mutex);
      beat.step = step;
      beat.phase = phase;
      beat.seconds = seconds_since(entered);
    }
    store->set(key_of(rank), bytes_of(beat.text()));
  }

  Beat read(int of) { return Beat::parse(store->get(key_of(of))); }

  // Reads all reports with one request. Only if a rank has never reported, asks for each report.
  std::vector<Beat> read_all() {
    std::vector<std::string> keys;
    for (int of = 0; of < size; ++of) keys.push_back(key_of(of));
    std::vector<Beat> out;
    if (store->check(keys)) {
      for (const auto& bytes : store->multiGet(keys)) out.push_back(Beat::parse(bytes));
      return out;
    }
    for (int of = 0; of < size; ++of) out.push_back(store->check({keys[static_cast<std::size_t>(of)]}) ? read(of) : Beat{});
    return out;
  }

  // Compares two reports of each rank.
  std::string compare_reports() {
    const std::vector<Beat> before = read_all();
    std::this_thread::sleep_for(3 * kInterval);
    const std::vector<Beat> after = read_all();
    std::string lost;
    int behind = 0;
    for (int of = 0; of < size; ++of) {
      const auto at = static_cast<std::size_t>(of);
      if (after[at].count == before[at].count || after[at].count == kGone) lost += (lost.empty() ? "lost: " : "; ") + after[at].place(of);
      if (after[at].step < after[static_cast<std::size_t>(behind)].step) behind = of;
    }
    if (!lost.empty()) return lost;
    const Beat& slowest = after[static_cast<std::size_t>(behind)];
    return concat("all ranks are alive; furthest behind: ", slowest.place(behind), " for ", static_cast<std::int64_t>(slowest.seconds), " s");
  }

  // Every rank wants to explain the same failure at the same time. The first one reads the reports of all ranks, and the others read what it
  // has found. They do not wait in the store, because `teller` needs the connection.
  std::string explain() {
    if (store->add(kReaders, 1) == 1) {
      const std::string text = compare_reports();
      store->set(kExplanation, bytes_of(text));
      return text;
    }
    const Clock::time_point begin = Clock::now();
    while (!store->check({kExplanation})) {
      if (Clock::now() - begin > kExplained) return "the rank that looked for lost ranks is lost, too";
      std::this_thread::sleep_for(kInterval);
    }
    return text_of(store->get(kExplanation));
  }

  // A failed collective of many ranks ends on some of them only when their neighbor in it exits, which may be rank 0 with the store. So each
  // rank's `teller` reads the explanation as soon as there is one.
  std::string heard_explanation() {
    const std::lock_guard lock(mutex);
    return explanation;
  }

  // The store often lives in rank 0 and ends with it, so rank 0 leaves the others time to read: their `teller` asks once per interval.
  void let_others_read() const {
    if (rank == 0) std::this_thread::sleep_for(2 * kInterval);
  }

  const int rank, size, next = (rank + 1) % size;
  const double silence;
  const std::string host;
  c10::intrusive_ptr<c10d::Store> store;
  std::atomic<std::uint64_t> count{kGone};

  std::mutex place_mutex;
  const char* phase = "start-up";
  std::int64_t step = 0;
  Clock::time_point entered = Clock::now();

  std::mutex mutex;  // guards everything below
  std::condition_variable wake;
  Beat last;  // the last report of the next rank
  Clock::time_point heard = Clock::now();
  std::string explanation;  // what another rank has found out about a failure
  const std::thread* leaving = nullptr;
  std::thread teller, watcher;
};

Heartbeat::Heartbeat(const ProcessGroup& group, double silence) {
  if (group.size() > 1) impl_ = std::make_unique<Impl>(group, silence);
}

Heartbeat::~Heartbeat() = default;

void Heartbeat::enter(const char* phase, std::int64_t step) {
  if (!impl_) return;
  const std::lock_guard lock(impl_->place_mutex);
  impl_->phase = phase;
  impl_->step = step;
  impl_->entered = Clock::now();
}

std::string Heartbeat::explain() const {
  if (!impl_) return {};
  if (std::string heard = impl_->heard_explanation(); !heard.empty() && impl_->rank != 0) return heard;
  try {
    std::string text = impl_->explain();
    impl_->let_others_read();
    return text;
  } catch (const std::exception&) {
    return "lost: rank 0, which keeps the ranks' store";
  }
}

}  // namespace tessera
