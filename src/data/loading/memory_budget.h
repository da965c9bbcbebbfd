#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

namespace tessera {

/// Limits the total bytes of samples being prepared and batches kept ready. A sample waits until it fits. The sample that is due
/// next always passes, so that images larger than the whole budget are still read, one at a time. A batch always passes if no other
/// is ready. Thread-safe.
class MemoryBudget : public std::enable_shared_from_this<MemoryBudget> {
 public:
  /// Bytes that stay in use until this object is destroyed. Movable, not copyable.
  class Claim {
   public:
    Claim() = default;
    Claim(Claim&& other) noexcept { swap(other); }
    Claim& operator=(Claim&& other) noexcept {
      Claim taken(std::move(other));
      swap(taken);
      return *this;
    }
    ~Claim();

    /// Changes the number of bytes immediately; does not wait.
    void set(std::int64_t bytes);

   private:
    friend class MemoryBudget;
    Claim(std::shared_ptr<MemoryBudget> budget, std::int64_t bytes, bool is_batch)
        : budget_(std::move(budget)), bytes_(bytes), is_batch_(is_batch) {}
    void swap(Claim& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(bytes_, other.bytes_);
      std::swap(is_batch_, other.is_batch_);
    }
    std::shared_ptr<MemoryBudget> budget_;
    std::int64_t bytes_ = 0;
    bool is_batch_ = false;
  };

  explicit MemoryBudget(std::int64_t limit) : limit_(limit) {}

  /// Waits until the sample's bytes fit or the sample is due.
  Claim claim_sample(std::int64_t ticket, std::int64_t bytes);
  /// Marks all samples up to `ticket` as due. For these samples, claim_sample() does not wait.
  void set_due(std::int64_t ticket);
  /// Waits until the budget has room for a further `bytes` bytes, or until no finished batch is waiting.
  void wait_for_batch(std::int64_t bytes);
  Claim claim_batch(std::int64_t bytes);

  /// Makes all waiting calls, now and later, throw Stopped.
  void stop();
  /// Returns the most bytes that were in use at once.
  std::int64_t peak() const;

 private:
  void add(std::int64_t bytes);
  /// Calls make() with the mutex locked, and then wakes the waiting threads.
  template <class Make>
  void change(const Make& make) {
    {
      const std::lock_guard lock(mutex_);
      make();
    }
    changed_.notify_all();
  }

  const std::int64_t limit_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t used_ = 0, peak_ = 0, due_ = 0, batches_ = 0;
  bool stopped_ = false;
};

}  // namespace tessera
