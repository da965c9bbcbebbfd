#include "src/data/loading/memory_budget.h"

#include <algorithm>

#include <tessera/data/stream.h>

namespace tessera {

MemoryBudget::Claim::~Claim() {
  if (!budget_) return;
  {
    const std::lock_guard lock(budget_->mutex_);
    budget_->used_ -= bytes_;
    if (is_batch_) --budget_->batches_;
  }
  budget_->changed_.notify_all();
}

void MemoryBudget::Claim::set(std::int64_t bytes) {
  if (!budget_) return;
  {
    const std::lock_guard lock(budget_->mutex_);
    budget_->add(bytes - bytes_);
    bytes_ = bytes;
  }
  budget_->changed_.notify_all();
}

MemoryBudget::Claim MemoryBudget::claim_sample(std::int64_t ticket, std::int64_t bytes) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopped_ || ticket <= due_ || used_ + bytes <= limit_; });
  if (stopped_) throw Stopped();
  add(bytes);
  Claim claim;
  claim.budget_ = shared_from_this();
  claim.bytes_ = bytes;
  return claim;
}

void MemoryBudget::set_due(std::int64_t ticket) {
  {
    const std::lock_guard lock(mutex_);
    due_ = ticket;
  }
  changed_.notify_all();
}

void MemoryBudget::wait_for_batch(std::int64_t bytes) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopped_ || batches_ == 0 || used_ + bytes <= limit_; });
  if (stopped_) throw Stopped();
}

MemoryBudget::Claim MemoryBudget::claim_batch(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  add(bytes);
  ++batches_;
  Claim claim;
  claim.budget_ = shared_from_this();
  claim.bytes_ = bytes;
  claim.is_batch_ = true;
  return claim;
}

void MemoryBudget::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
}

std::int64_t MemoryBudget::peak() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

void MemoryBudget::add(std::int64_t bytes) {
  used_ += bytes;
  peak_ = std::max(peak_, used_);
}

}  // namespace tessera
