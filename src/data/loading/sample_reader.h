#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "src/data/loading/work_time.h"
#include <tessera/data/loading/loader.h>
#include <tessera/data/source.h>

namespace tessera {

/// Called between two attempts with what went wrong and the seconds to wait.
using Pause = std::function<void(double seconds, const std::string& what)>;

/// Waits, and logs why.
void pause_and_tell(double seconds, const std::string& what);

/// Reads the samples of a source, of whichever kind, for threads that work on numbered tickets. Every ticket from 0 on
/// must either read or pass, once.
class SampleReader {
 public:
  virtual ~SampleReader() = default;
  /// The sample of a ticket. With random access it is sample `index` of the source; of a stream it is the one at `place`
  /// in its order, where places rise with the tickets. Throws SampleError (this sample; or `io_error`: a source that
  /// failed, with on_failure skip), UserError (the source), Stopped, what `pause` throws.
  virtual Sample read(std::int64_t ticket, const DataPosition& place, std::int64_t index, const Pause& pause) = 0;
  virtual void pass(std::int64_t ticket) = 0;
  /// Threads that wait in read() throw Stopped.
  virtual void stop() = 0;

  /// Sample `index` in one pass over the source, whose indices rise with the tickets.
  Sample read_in_order(std::int64_t ticket, std::int64_t index) {
    return read(ticket, {0, index}, index, pause_and_tell);
  }
};

/// A reader for training. A source that fails is read again as the settings' `retries`, `retry_seconds` and `on_failure`
/// say; a stream has retries of its own, and shuffles by itself as `shuffle`, `seed` and `slice` say. `work` gets the
/// time spent in reads that one thread does alone. Throws UserError when a stream has fewer files than there are ranks.
std::shared_ptr<SampleReader> make_sample_reader(const std::shared_ptr<const Source>& source,
                                                 const LoaderSettings& settings, std::uint64_t seed,
                                                 const RankSlice& slice, std::shared_ptr<WorkTotals> work);

/// A reader for one pass over the source in its order.
std::shared_ptr<SampleReader> make_ordered_reader(const std::shared_ptr<const Source>& source,
                                                  LoaderSettings settings = {});
/// The same of a source that outlives the reader.
std::shared_ptr<SampleReader> make_ordered_reader(const Source& source);

/// Stops a reader before the threads that wait for it are waited for.
class ReaderStop {
 public:
  explicit ReaderStop(std::shared_ptr<SampleReader> reader) : reader_(std::move(reader)) {}
  ~ReaderStop() { reader_->stop(); }
  ReaderStop(const ReaderStop&) = delete;
  ReaderStop& operator=(const ReaderStop&) = delete;

 private:
  std::shared_ptr<SampleReader> reader_;
};

}  // namespace tessera
