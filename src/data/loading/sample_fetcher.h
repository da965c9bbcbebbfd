#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/data/loading/caption_entries.h"
#include "src/data/loading/concept_balance.h"
#include "src/data/loading/memory_budget.h"
#include "src/data/loading/sample_reader.h"
#include "src/data/loading/sample_transform.h"
#include "src/data/loading/sampler.h"

namespace tessera {

/// Reads and transforms samples in a loader's threads, from one seek to the next. If an update has n batches, the threads read a
/// sample for each batch in turn. Ticket i is the sample of batch i % n at place `start` + i / n (integer division). The threads
/// keep this object alive, because a thread may hang in a read when the loader is destroyed.
class SampleFetcher {
 public:
  /// The stages that a sample passes through, in order.
  struct Stages {
    std::shared_ptr<Sampler> sampler;
    std::shared_ptr<const CaptionEntries> entries;  // the pairs to which the sampler's indices refer; null if they refer to samples
    std::shared_ptr<const Source> source;
    std::shared_ptr<SampleReader> reader;
    std::shared_ptr<const ConceptBalance> balance;  // chooses the samples to use; null: all
    std::shared_ptr<const SampleTransform> transform;
    std::shared_ptr<WorkTotals> work;  // sums up the time that the stages take
  };
  /// `batches_of_run` has the same meaning as in LoaderTarget.
  SampleFetcher(Stages stages, const LoaderSettings& settings, std::int64_t batches_of_run, const DataPosition& start);

  PreparedSample fetch(std::int64_t ticket, std::int64_t thread);

  DataPosition place_of(std::int64_t ticket) const;
  /// From now on, skips the samples of `segment` and of all earlier segments.
  void leave_out(std::int64_t segment) { over_segment_ = segment; }
  bool is_left_out(std::int64_t segment) const { return segment <= over_segment_; }
  MemoryBudget& budget() { return *budget_; }
  /// Describes a sample and its progress: "sample number 7 of x.tar (thread 2 is reading it)".
  std::string describe(std::int64_t ticket) const;
  /// Returns the number of samples that a stream has read only to reach the start.
  std::int64_t passed_over() const { return stages_.reader->passed_over(); }
  /// Makes waiting threads throw Stopped.
  void stop();

 private:
  struct Job {
    std::int64_t ticket = -1;
    std::string sample;
    std::string doing;
  };
  std::int64_t max_patches_at(const DataPosition& place) const;
  void announce(std::int64_t ticket);
  void enter(std::int64_t ticket, std::int64_t thread, std::string sample, std::string doing);
  Pause pause_in(std::int64_t ticket, std::int64_t thread, std::int64_t index);

  const Stages stages_;
  const std::int64_t max_pixels_;
  const std::int64_t batch_size_;
  const std::vector<ResolutionStep> resolution_;
  const std::int64_t batches_of_run_;
  const DataPosition start_;
  const std::int64_t batches_per_update_;
  const std::shared_ptr<MemoryBudget> budget_;
  std::atomic<std::int64_t> over_segment_ = -1;
  const std::int64_t ahead_;  // tickets before a sample is read at which its source is told; -1: not at all
  std::mutex announcing_;     // guards announced_
  std::int64_t announced_ = 0;  // the first ticket that no source has been told of

  mutable std::mutex mutex_;
  std::condition_variable stopping_;
  bool stopped_ = false;
  std::vector<Job> jobs_;  // the current job of each thread
};

}  // namespace tessera
