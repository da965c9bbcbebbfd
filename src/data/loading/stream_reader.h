#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>

#include "src/data/loading/sample_reader.h"
#include <tessera/data/stream.h>

namespace tessera {

/// Lets threads share a stream: they read its samples one at a time, in the order of the tickets, and decode them in parallel.
class StreamReader : public SampleReader {
 public:
  /// Throws UserError if there are fewer files than ranks.
  StreamReader(std::shared_ptr<const StreamSource> source, std::uint64_t seed, bool shuffle, const RankSlice& slice);

  /// Waits until all lower tickets are done, then returns the sample at `place`. Reads and discards the samples between the previous place
  /// and this one, or, for the first place of an epoch, those before it. If the stream throws, this and all later tickets throw the same
  /// exception. Throws Stopped after stop().
  Sample read(std::int64_t ticket, const DataPosition& place, std::int64_t index, const Pause& pause) override;
  void pass(std::int64_t ticket) override;
  std::int64_t passed_over() const override { return passed_over_; }
  void stop() override;

 private:
  void wait_for_turn(std::unique_lock<std::mutex>& lock, std::int64_t ticket);
  std::function<Sample()> read_bytes(const DataPosition& place);

  const std::shared_ptr<const StreamSource> source_;
  const std::uint64_t seed_;
  const bool shuffle_;
  const RankSlice slice_;
  std::stop_source stopping_;
  std::atomic<std::int64_t> passed_over_ = 0;

  std::mutex mutex_;  // guards turn_ and failure_
  std::condition_variable turns_;
  std::int64_t turn_ = 0;
  std::exception_ptr failure_;

  // Used only by the thread whose turn it is.
  std::unique_ptr<SampleStream> stream_;
  DataPosition at_;
};

}  // namespace tessera
