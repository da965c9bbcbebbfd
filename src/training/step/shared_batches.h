#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "src/distributed/agreement.h"
#include <tessera/data/loading/loader.h>

namespace tessera {

/// Reads the batches of a run such that the ranks end an epoch, or a source within the epoch, together, and passes on what a rank has to
/// tell the others. All of this takes one small all-reduce per batch on the host. It starts when the previous batch has been returned, and
/// travels while that batch is computed, so a rank waits only if another one is late by a whole batch.
class SharedBatches {
 public:
  /// What a rank tells the others, or the greatest values that any rank told.
  struct Notice {
    std::int64_t signal = 0;  // a signal that the rank has received; 0: none
    bool save_due = false;    // whether a checkpoint is due
    /// The step of the newest save whose part this rank has written (of all ranks: the least), and whether that failed.
    std::int64_t part_done = -1;
    bool part_failed = false;
  };

  /// The references must outlive this object.
  SharedBatches(const ProcessGroup& group, Loader& loader) : group_(group), loader_(loader) {}

  /// Sets the function that returns this rank's notice.
  void give_notice(std::function<Notice()> notice) { notice_ = std::move(notice); }
  /// Returns the loader's next batch. Skips batches if another rank has reached a later epoch or source. Throws UserError on every rank if
  /// one of them cannot read.
  Batch next();
  /// Returns the ranks' notices as they were when next() returned the last batch, the same on every rank. Does not throw if a rank cannot
  /// read the batch that follows. A process without other ranks returns its notice as it is now.
  Notice noticed();
  /// Continues the loader from a position. Every rank must call it after the same batch.
  void seek(const DataPosition& position);

 private:
  Agreement& announced();

  const ProcessGroup& group_;
  Loader& loader_;
  std::function<Notice()> notice_ = [] { return Notice{}; };
  std::optional<Agreement> announced_;  // on the next batch
};

}  // namespace tessera
