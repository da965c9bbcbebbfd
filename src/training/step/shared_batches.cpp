#include "src/training/step/shared_batches.h"

#include <algorithm>
#include <utility>

namespace tessera {

// Waits for this rank's next batch and announces it to the others, unless that has been done.
Agreement& SharedBatches::announced() {
  if (announced_) return *announced_;
  std::exception_ptr own;
  std::int64_t segment = 0;
  try {
    segment = loader_.next_segment();
  } catch (...) {
    own = std::current_exception();
  }
  const Notice notice = notice_();
  return announced_.emplace(group_, "reading data", own, std::vector<std::int64_t>{segment, -segment, notice.signal, notice.save_due ? 1 : 0, -notice.part_done,
                                                     notice.part_failed ? 1 : 0});
}

Batch SharedBatches::next() {
  if (group_.alone()) return loader_.next();
  // A rank that skipped corrupt samples may reach the end of an epoch, or of a source within the epoch, before the other ranks. The other
  // ranks then skip the rest of the epoch or source.
  while (true) {
    announced().check();
    const std::int64_t last = announced().maxima()[0], first = -announced().maxima()[1];
    announced_.reset();
    if (first == last) break;
    run_on_all_ranks(group_, "reading data", [&] {
      while (loader_.next_segment() < last) loader_.next();
    });
  }
  Batch batch = loader_.next();
  announced();
  return batch;
}

SharedBatches::Notice SharedBatches::noticed() {
  if (group_.alone()) return notice_();
  const std::vector<std::int64_t>& greatest = announced().maxima();
  return {greatest[2], greatest[3] != 0, -greatest[4], greatest[5] != 0};
}

void SharedBatches::seek(const DataPosition& position) {
  announced_.reset();
  loader_.seek(position);
}

}  // namespace tessera
