#include "src/data/loading/memory_budget.h"

#include <algorithm>

#include <tessera/data/stream.h>

namespace tessera {

MemoryBudget::Claim::~Claim() {
  if (!budget_) return;
  budget_->change([&] {
    budget_->used_ -= bytes_;
    if (is_batch_) --budget_->batches_;
  });
}

void MemoryBudget::Claim::set(std::int64_t bytes) {
  if (budget_) budget_->change([&] { budget_->add(bytes - std::exchange(bytes_, bytes)); });
}

MemoryBudget::Claim MemoryBudget::claim_sample(std::int64_t ticket, std::int64_t bytes) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopped_ || ticket <= due_ || used_ + bytes <= limit_; });
  if (stopped_) throw Stopped();
  add(bytes);
  return {shared_from_this(), bytes, /*is_batch=*/false};
}

void MemoryBudget::set_due(std::int64_t ticket) {
  change([&] { due_ = ticket; });
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
  return {shared_from_this(), bytes, /*is_batch=*/true};
}

void MemoryBudget::stop() {
  change([&] { stopped_ = true; });
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
