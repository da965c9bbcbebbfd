#pragma once

#include <algorithm>
#include <memory>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace tessera {

/// Measures the size in bytes of the largest block that LibTorch's CPU allocator returns on this thread while this object exists.
class LargestAllocation {
 public:
  LargestAllocation() : record_(std::make_shared<Record>()), guard_(c10::DebugInfoKind::PROFILER_STATE, record_) {}
  std::int64_t bytes() const { return record_->largest; }

 private:
  struct Record : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, std::int64_t size, std::size_t, std::size_t, c10::Device) override {
      largest = std::max(largest, size);
    }
    bool memoryProfilingEnabled() const override { return true; }
    std::int64_t largest = 0;
  };
  std::shared_ptr<Record> record_;
  c10::DebugInfoGuard guard_;
};

}  // namespace tessera
