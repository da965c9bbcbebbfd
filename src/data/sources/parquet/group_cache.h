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

/// The groups of rows that were used last. Thread-safe: one thread reads a group, others that want it wait.
class GroupCache {
 public:
  using Group = std::shared_ptr<const ColumnGroup>;

  /// most: groups that are kept.
  explicit GroupCache(std::size_t most) : most_(most) {}

  /// The group of this number, out of `read` where it is not there. Damage stays known; a disk that fails is asked again.
  Group get(std::int64_t number, const std::function<Group()>& read);

 private:
  struct Entry {
    std::shared_future<Group> group;
    std::list<std::int64_t>::iterator place;
  };

  const std::size_t most_;
  std::mutex mutex_;
  std::list<std::int64_t> order_;  // the one used last stands first
  std::unordered_map<std::int64_t, Entry> entries_;
};

}  // namespace tessera
