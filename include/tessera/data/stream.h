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

/// Thrown to those who wait for samples when somebody has asked to stop.
class Stopped : public std::runtime_error {
 public:
  Stopped() : std::runtime_error("the workers were stopped") {}
};

/// Samples one after the other, without end: when all have come, they come again, in another order.
class SampleStream {
 public:
  virtual ~SampleStream() = default;
  /// The next sample. Only its bytes are read here; the function that is returned makes the sample of them, in any
  /// thread, and throws SampleError when it is unreadable. Throws UserError when the stream is, Stopped after `stop`
  /// was asked.
  virtual std::function<Sample()> next() = 0;
};

/// Which row of samples a stream gives. Everything follows from these.
struct StreamStart {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  bool shuffle = true;
  RankSlice slice;       // of the files, not of the samples
  std::stop_token stop;  // ends waiting
};

/// A source without random access: its samples come only in the order in which its files are read. size() is what an
/// epoch is taken to be; a rank whose files hold less begins them again, one whose files hold more does not come to
/// their end.
class StreamSource : public Source {
 public:
  SourceKind kind() const final { return this; }
  /// Number of files, each of which one rank reads.
  virtual std::int64_t files() const = 0;
  /// From the epoch's begin. Thread-safe.
  virtual std::unique_ptr<SampleStream> open(const StreamStart& start) const = 0;
  /// What the order is, for the log.
  virtual std::string describe_order() const = 0;
};

}  // namespace tessera
