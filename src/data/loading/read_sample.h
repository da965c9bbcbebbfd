#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/data/loading/stream_reader.h"
#include <tessera/data/loading/loader.h>
#include <tessera/data/source.h>

namespace tessera {

/// Called between two attempts with what went wrong and the seconds to wait.
using Pause = std::function<void(double seconds, const std::string& what)>;

/// Reads a sample, again when its source fails, as the settings' `retries`, `retry_seconds` and `on_failure` say.
/// Throws SampleError (this sample; or `io_error`: the source with on_failure skip), UserError (the source), what
/// `pause` throws.
Sample read_sample(const Source& source, std::int64_t index, const LoaderSettings& settings, const Pause& pause);

/// Waits, and logs why.
void pause_and_tell(double seconds, const std::string& what);

/// One pass over a source, in the order of its samples, for threads that work on numbered tickets: a stream is read one
/// sample after the other, every other source sample by sample.
class SampleReader {
 public:
  explicit SampleReader(std::shared_ptr<const Source> source)
      : source_(std::move(source)), stream_(stream_reader_of(source_)) {}
  /// It must outlive the reader.
  explicit SampleReader(const Source& source)
      : SampleReader(std::shared_ptr<const Source>(std::shared_ptr<const void>(), &source)) {}

  /// Sample `index`; indices rise with the tickets, and every ticket from 0 on reads once. Throws as read_sample does
  /// with the settings' defaults.
  Sample read(std::int64_t ticket, std::int64_t index) const;
  /// Those that wait throw Stopped: for a StreamStop behind the threads.
  const std::shared_ptr<StreamReader>& stream() const { return stream_; }

 private:
  std::shared_ptr<const Source> source_;
  std::shared_ptr<StreamReader> stream_;  // null: the source has random access
};

}  // namespace tessera
