#include "src/data/loading/stream_reader.h"

#include <tessera/base/error.h>

namespace tessera {

StreamReader::StreamReader(std::shared_ptr<const StreamSource> source, std::uint64_t seed, bool shuffle,
                           const RankSlice& slice)
    : source_(std::move(source)), seed_(seed), shuffle_(shuffle), slice_(slice) {
  if (source_->files() < slice.count)
    user_error(source_->describe(), ": ", source_->files(), " streams cannot be split over ", slice.count,
               " processes: each needs at least one; write more shards, or use fewer processes");
}

void StreamReader::wait_for_turn(std::unique_lock<std::mutex>& lock, std::int64_t ticket) {
  turns_.wait(lock, [&] { return turn_ == ticket || failure_ || stopping_.stop_requested(); });
  if (stopping_.stop_requested()) throw Stopped();
  if (failure_) std::rethrow_exception(failure_);
}

Sample StreamReader::read(std::int64_t ticket, const DataPosition& place, std::int64_t /*index*/,
                          const Pause& /*pause*/) {
  std::function<Sample()> make;
  {
    std::unique_lock lock(mutex_);
    wait_for_turn(lock, ticket);
    lock.unlock();  // safe without the lock, because the other threads wait for their turn
    std::exception_ptr failure;
    try {
      make = read_bytes(place);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    ++turn_;
  }
  turns_.notify_all();
  if (!make) {
    const std::lock_guard lock(mutex_);
    std::rethrow_exception(failure_);
  }
  return make();
}

std::function<Sample()> StreamReader::read_bytes(const DataPosition& place) {
  if (!stream_ || at_.epoch != place.epoch) {
    stream_ = source_->open({seed_, place.epoch, shuffle_, slice_, stopping_.get_token()});
    at_ = {place.epoch, 0};
  }
  for (; at_.cursor < place.cursor; ++at_.cursor) {
    stream_->next();
    ++passed_over_;
  }
  ++at_.cursor;
  return stream_->next();
}

void StreamReader::pass(std::int64_t ticket) {
  {
    std::unique_lock lock(mutex_);
    wait_for_turn(lock, ticket);
    ++turn_;
  }
  turns_.notify_all();
}

void StreamReader::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_.request_stop();
  }
  turns_.notify_all();
}

}  // namespace tessera
