#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <string>

#include <tessera/data/position.h>
#include <tessera/data/source.h>

namespace tessera {

/// When the loader is stopped, the threads that are waiting for samples throw this exception.
class Stopped : public std::runtime_error {
 public:
  Stopped() : std::runtime_error("the workers were stopped") {}
};

/// An endless sequence of samples. After the last sample it starts over, in another order.
class SampleStream {
 public:
  virtual ~SampleStream() = default;
  /// Reads the bytes of the next sample and returns a function that makes the sample from them. That function may be called in any thread
  /// and throws SampleError if the sample is unreadable. next() throws UserError if the stream is unreadable, and Stopped if
  /// StreamStart::stop was requested.
  virtual std::function<Sample()> next() = 0;
};

/// What determines the samples of a stream and their order.
struct StreamStart {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  bool shuffle = true;
  RankSlice slice;       // this rank's share of the files, not of the samples
  std::stop_token stop;  // a stop request ends every wait
};

/// A source without random access. Its samples come in the order in which its files are read. size() defines the length of an epoch. If the
/// files of a rank hold fewer samples than the rank's share of an epoch, the rank reads the files again from the start; if they hold more,
/// it does not reach their end.
class StreamSource : public Source {
 public:
  SourceKind kind() const final { return this; }
  /// The number of files; each is read by one rank.
  virtual std::int64_t files() const = 0;
  /// Opens the stream at the start of the epoch `start.epoch`. Thread-safe.
  virtual std::unique_ptr<SampleStream> open(const StreamStart& start) const = 0;
  /// Describes the order of samples, for the log.
  virtual std::string describe_order() const = 0;
};

}  // namespace tessera
