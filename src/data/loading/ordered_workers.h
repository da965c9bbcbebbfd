#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tessera/data/stream.h>

namespace tessera {

/// How long to wait for a result before logging a warning, and before failing.
struct WaitPolicy {
  double warn_after = 60;  // in seconds; if the wait goes on, the warning is repeated at 2, 4, 8, ... times this value
  double timeout = 0;      // seconds until check_wait() throws UserError; 0: no limit
  std::string source;      // description of the source of the results
  /// Describes result number `ticket` and its progress: "sample number 7 (thread 2 is reading it)".
  std::function<std::string(std::int64_t ticket)> describe;
  /// A count that grows while work that may take longer than the timeout moves on. If it has grown during a wait, the timeout starts
  /// again. Null: no such work.
  std::function<std::int64_t()> progress;
};

/// Logs a warning if result number `ticket` is overdue after `waited` seconds. Returns the value of `waited` at which to call this
/// function again. Throws UserError after the timeout.
double check_wait(const WaitPolicy& wait_policy, std::int64_t ticket, double waited);

/// Warns that `count` threads hang in a read and are left running.
void warn_of_left_threads(std::int64_t count);

constexpr double kAbandonAfter = 10;  // seconds; decoding an image takes less

/// Threads that compute make(0), make(1), ... ahead of their use. take() returns the results in this order, so that nothing depends
/// on which thread finishes first. An exception from make(i) is thrown by the take() that would have returned its result, and by
/// every later take().
template <class Result>
class OrderedWorkers {
 public:
  /// Computes result number `ticket` on thread number `thread` (from 0).
  using Make = std::function<Result(std::int64_t ticket, std::int64_t thread)>;

  /// At most `ahead` results are ready or being computed at a time. `count` is the number of results; -1 means unlimited.
  OrderedWorkers(std::int64_t threads, std::int64_t ahead, std::int64_t count, Make make)
      : state_(std::make_shared<State>(ahead, count, std::move(make))) {
    state_->running = threads;
    for (std::int64_t i = 0; i < threads; ++i) threads_.emplace_back([state = state_, i] { state->work(i); });
  }

  /// Waits for the results that are being computed, but starts no new ones. If abandon_after() was called, threads that do not end
  /// in time are left running; `make` must then own everything that it uses.
  ~OrderedWorkers() {
    stop();
    std::unique_lock lock(state_->mutex);
    const auto ended = [this] { return state_->running == 0; };
    if (abandon_after_ && !state_->ended.wait_for(lock, std::chrono::duration<double>(*abandon_after_), ended)) {
      const std::int64_t left = state_->running;
      lock.unlock();
      warn_of_left_threads(left);
      for (std::thread& thread : threads_) thread.detach();
      return;
    }
    lock.unlock();
    for (std::thread& thread : threads_) thread.join();
  }

  OrderedWorkers(const OrderedWorkers&) = delete;
  OrderedWorkers& operator=(const OrderedWorkers&) = delete;

  /// Returns the next result. Only one thread at a time may call it. With a `wait_policy`, logs what it waits for and throws
  /// UserError after the policy's timeout. Throws Stopped after stop().
  Result take(const WaitPolicy* wait_policy = nullptr) {
    std::unique_lock lock(state_->mutex);
    const auto there = [this] { return state_->stopped || state_->done.contains(state_->taken); };
    if (wait_policy == nullptr)
      state_->ready.wait(lock, there);
    else
      wait(lock, there, *wait_policy);
    if (state_->stopped) throw Stopped();
    Outcome& outcome = state_->done.at(state_->taken);
    if (outcome.error) std::rethrow_exception(outcome.error);
    Result result = std::move(*outcome.result);
    state_->done.erase(state_->taken++);
    lock.unlock();
    state_->space.notify_all();
    return result;
  }

  void stop() {
    {
      const std::lock_guard lock(state_->mutex);
      state_->stopped = true;
    }
    state_->space.notify_all();
    state_->ready.notify_all();
  }

  /// Makes the destructor wait at most this many seconds, or not at all after a timeout of take(); threads that are then still in make()
  /// are left running. Must not be called while another thread is in take().
  void abandon_after(double seconds) { abandon_after_ = seconds; }

 private:
  struct Outcome {
    std::optional<Result> result;
    std::exception_ptr error;
  };

  struct State {
    State(std::int64_t most_ahead, std::int64_t how_many, Make given_make)
        : ahead(most_ahead), count(how_many), make(std::move(given_make)) {}

    void work(std::int64_t thread) {
      while (std::optional<std::int64_t> ticket = next_ticket()) {
        Outcome outcome;
        try {
          outcome.result = make(*ticket, thread);
        } catch (...) {
          outcome.error = std::current_exception();
        }
        {
          const std::lock_guard lock(mutex);
          done.emplace(*ticket, std::move(outcome));
        }
        ready.notify_all();
      }
      const std::lock_guard lock(mutex);
      --running;
      ended.notify_all();
    }

    std::optional<std::int64_t> next_ticket() {
      std::unique_lock lock(mutex);
      const auto finished = [this] { return count >= 0 && next >= count; };
      space.wait(lock, [&] { return stopped || finished() || next - taken < ahead; });
      if (stopped || finished()) return std::nullopt;
      return next++;
    }

    const std::int64_t ahead;
    const std::int64_t count;
    const Make make;
    std::mutex mutex;
    std::condition_variable space, ready, ended;
    std::map<std::int64_t, Outcome> done;
    std::int64_t next = 0, taken = 0, running = 0;
    bool stopped = false;
  };

  template <class There>
  void wait(std::unique_lock<std::mutex>& lock, There there, const WaitPolicy& wait_policy) {
    using Seconds = std::chrono::duration<double>;
    const auto progress_now = [&] { return wait_policy.progress ? wait_policy.progress() : 0; };
    auto begin = std::chrono::steady_clock::now();
    std::int64_t progress = progress_now();
    const auto waited = [&] { return Seconds(std::chrono::steady_clock::now() - begin).count(); };
    double until = check_wait(wait_policy, state_->taken, 0);
    while (!state_->ready.wait_for(lock, Seconds(until - waited()), there)) {
      const std::int64_t ticket = state_->taken;
      lock.unlock();
      if (wait_policy.timeout > 0 && waited() >= wait_policy.timeout && progress_now() > progress) {
        begin = std::chrono::steady_clock::now();
        progress = progress_now();
      }
      try {
        until = check_wait(wait_policy, ticket, waited());
      } catch (...) {
        if (abandon_after_) abandon_after_ = 0;  // threads that hang have had their time
        throw;
      }
      lock.lock();
    }
  }

  std::shared_ptr<State> state_;
  std::optional<double> abandon_after_;
  std::vector<std::thread> threads_;
};

}  // namespace tessera
