#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "src/data/formats/column_file.h"

namespace tessera {

/// Caches the most recently used row groups. Thread-safe: one thread reads a group while others that need it wait.
class GroupCache {
 public:
  using Group = std::shared_ptr<const ColumnGroup>;

  /// most: number of groups to keep.
  explicit GroupCache(std::size_t most) : most_(most) {}

  /// Returns the group of this number, and calls `read` if it is not cached. If `read` reports damage, the error is cached; if
  /// the disk fails (std::system_error), the next call reads again.
  Group get(std::int64_t number, const std::function<Group()>& read);

 private:
  struct Entry {
    std::shared_future<Group> group;
    std::list<std::int64_t>::iterator place;
  };

  const std::size_t most_;
  std::mutex mutex_;
  std::list<std::int64_t> order_;  // most recently used first
  std::unordered_map<std::int64_t, Entry> entries_;
};

}  // namespace tessera
