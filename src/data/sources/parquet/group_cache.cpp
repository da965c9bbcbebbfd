#include "src/data/sources/parquet/group_cache.h"

#include <system_error>

namespace tessera {

GroupCache::Group GroupCache::get(std::int64_t number, const std::function<Group()>& read) {
  std::promise<Group> promise;
  {
    std::unique_lock lock(mutex_);
    if (const auto found = entries_.find(number); found != entries_.end()) {
      order_.splice(order_.begin(), order_, found->second.place);
      const std::shared_future<Group> group = found->second.group;
      lock.unlock();
      return group.get();
    }
    order_.push_front(number);
    entries_[number] = {promise.get_future().share(), order_.begin()};
    while (entries_.size() > most_) {
      entries_.erase(order_.back());
      order_.pop_back();
    }
  }
  try {
    Group group = read();
    promise.set_value(group);
    return group;
  } catch (const std::system_error&) {
    promise.set_exception(std::current_exception());
    const std::lock_guard lock(mutex_);
    if (const auto found = entries_.find(number); found != entries_.end()) {
      order_.erase(found->second.place);
      entries_.erase(found);
    }
    throw;
  } catch (...) {
    promise.set_exception(std::current_exception());
    throw;
  }
}

}  // namespace tessera
