#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace tessera {

/// Thrown by take() after stop().
class Stopped : public std::runtime_error {
 public:
  Stopped() : std::runtime_error("the workers were stopped") {}
};

/// Threads that compute make(0), make(1), ... ahead of their use; take() hands the results out in this order, so that
/// nothing depends on which thread was first. An exception out of make(i) comes out of the take() that would have given
/// its result, and of every later one.
template <class Result>
class OrderedWorkers {
 public:
  /// At most `ahead` results are kept or in the making. `count`: how many there are, -1 = without end.
  OrderedWorkers(std::int64_t threads, std::int64_t ahead, std::int64_t count, std::function<Result(std::int64_t)> make)
      : ahead_(ahead), count_(count), make_(std::move(make)) {
    for (std::int64_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }

  /// Waits for the results that are in the making, not for those that nobody has begun.
  ~OrderedWorkers() { stop(); }

  OrderedWorkers(const OrderedWorkers&) = delete;
  OrderedWorkers& operator=(const OrderedWorkers&) = delete;

  /// The next result. One thread at a time may take.
  Result take() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [this] { return stopped_ || done_.contains(taken_); });
    if (stopped_) throw Stopped();
    Outcome& outcome = done_.at(taken_);
    if (outcome.error) std::rethrow_exception(outcome.error);
    Result result = std::move(*outcome.result);
    done_.erase(taken_++);
    lock.unlock();
    space_.notify_all();
    return result;
  }

  void stop() {
    {
      std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    space_.notify_all();
    ready_.notify_all();
  }

 private:
  struct Outcome {
    std::optional<Result> result;
    std::exception_ptr error;
  };

  void work() {
    while (true) {
      std::int64_t ticket = 0;
      {
        std::unique_lock lock(mutex_);
        space_.wait(lock, [this] { return stopped_ || finished() || next_ - taken_ < ahead_; });
        if (stopped_ || finished()) return;
        ticket = next_++;
      }
      Outcome outcome;
      try {
        outcome.result = make_(ticket);
      } catch (...) {
        outcome.error = std::current_exception();
      }
      {
        std::lock_guard lock(mutex_);
        done_.emplace(ticket, std::move(outcome));
      }
      ready_.notify_all();
    }
  }

  bool finished() const { return count_ >= 0 && next_ >= count_; }

  const std::int64_t ahead_;
  const std::int64_t count_;
  const std::function<Result(std::int64_t)> make_;
  std::mutex mutex_;
  std::condition_variable space_;
  std::condition_variable ready_;
  std::map<std::int64_t, Outcome> done_;
  std::int64_t next_ = 0;
  std::int64_t taken_ = 0;
  bool stopped_ = false;
  std::vector<std::jthread> threads_;  // last: joined before what they use goes
};

}  // namespace tessera
