#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>

#include "src/data/loading/sampler.h"
#include <tessera/data/stream.h>

namespace tessera {

/// Lets threads that work on numbered tickets share a stream: the samples are read in the order of the tickets, one at
/// a time, and made (decoded) by the threads. Every ticket from 0 on must either take or pass, once.
class StreamReader {
 public:
  /// Throws UserError when there are fewer files than shards.
  StreamReader(std::shared_ptr<const StreamSource> source, std::uint64_t seed, bool shuffle, const RankSlice& shard);

  /// The sample of this place, after those of all lower tickets. Places rise with the tickets; samples between them are
  /// read and thrown away, as are those before the first place in its epoch. Throws what the stream throws, for this
  /// and all later tickets, and Stopped.
  Sample take(std::int64_t ticket, const DataPosition& place);
  void pass(std::int64_t ticket);
  /// What decides the random choices of the sample of a place.
  SampleRef entry(const DataPosition& place) const {
    return {place.cursor * shard_.count + shard_.index, 0, place.epoch};
  }
  /// Those that wait throw Stopped.
  void stop();

 private:
  void wait_for_turn(std::unique_lock<std::mutex>& lock, std::int64_t ticket);
  std::function<Sample()> read(const DataPosition& place);

  const std::shared_ptr<const StreamSource> source_;
  const std::uint64_t seed_;
  const bool shuffle_;
  const RankSlice shard_;
  std::stop_source stopping_;

  std::mutex mutex_;  // guards turn_ and failure_
  std::condition_variable turns_;
  std::int64_t turn_ = 0;
  std::exception_ptr failure_;

  // Of the thread whose turn it is.
  std::unique_ptr<SampleStream> stream_;
  DataPosition at_;
};

/// Null for a source that has random access.
std::shared_ptr<StreamReader> stream_reader_of(const std::shared_ptr<const Source>& source, std::uint64_t seed = 0,
                                               bool shuffle = false, const RankSlice& shard = {});

/// Stops a reader, which may be null, before the threads that wait for it are waited for.
class StreamStop {
 public:
  explicit StreamStop(std::shared_ptr<StreamReader> reader) : reader_(std::move(reader)) {}
  ~StreamStop() {
    if (reader_) reader_->stop();
  }
  StreamStop(const StreamStop&) = delete;
  StreamStop& operator=(const StreamStop&) = delete;

 private:
  std::shared_ptr<StreamReader> reader_;
};

}  // namespace tessera
