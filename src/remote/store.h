#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "src/remote/cache.h"
#include "src/remote/client.h"

namespace tessera::remote {

/// What a process has read from remote stores since it started.
struct RemoteCounts {
  std::int64_t requests = 0, bytes = 0, retries = 0;
  std::int64_t hits = 0, misses = 0;  // reads that found a local copy, and that waited for one
};

/// Remote objects as local files. An object is the one that this process first saw at its address: if it changes, reading it is an error.
/// Thread-safe; all errors are UserErrors that name the address.
class Store {
 public:
  explicit Store(const CacheSettings& settings);
  ~Store();

  /// Returns the addresses that a name refers to, sorted: of the objects that match its wildcards (not for http and https), of those in a
  /// folder (s3://bucket/folder/) that end in `extension`, or the name itself. A repository (hf://datasets/OWNER/NAME) stands for such
  /// files that are named train-*, in its folder data/ or at its top, or else for all in one of these folders. Throws MissingObject if
  /// there are none.
  std::vector<std::string> expand(const std::string& name, const std::string& extension);
  /// Returns the addresses of the objects in a folder (s3://bucket/folder/), but not of those in its subfolders, sorted. From now on, the
  /// objects are those that exist now.
  std::vector<std::string> list(const std::string& folder);
  /// Returns an object's state, for which the store is asked once, or again.
  ObjectState look_up(const std::string& address, bool again = false);
  /// Asks for the states of many objects at a time. Throws the error of the first one that is missing.
  void look_up_all(const std::vector<std::string>& addresses);
  /// Returns a local copy of a piece, or of the whole object if there is one or if the server does not send pieces. Fetches the copy if
  /// there is none.
  Lease open(const Piece& piece);
  /// Returns `size` bytes of an object from `offset` on, from the store.
  std::string read(const std::string& address, std::uint64_t offset, std::uint64_t size);
  /// Returns whether there is a local copy, or there will be one, because fetch_ahead() was called.
  bool expects(const Piece& piece);
  /// Fetches a piece in the background, unless there is a copy. Errors are left to open().
  void fetch_ahead(const Piece& piece);

  /// Returns all bytes of an object that belongs to one sample. No copy is kept, and the object is not looked up before. Throws
  /// MissingObject.
  std::string read_small(const std::string& address);
  /// Reads such an object in the background, for the next call of read_small().
  void read_small_ahead(const std::string& address);

  /// Ends the fetching in the background, and waits until its threads have ended. All later calls that need a request fail.
  void stop();
  /// Returns whether nothing is left to fetch in the background.
  bool is_idle();

  /// The number of objects to fetch ahead.
  std::int64_t ahead() const { return settings_.ahead; }
  /// The folder for indices of shards.
  std::string index_folder() const { return (cache_.folder() / "index").string(); }
  std::uint64_t limit() const { return cache_.limit(); }
  const Cache& cache() const { return cache_; }
  RemoteCounts counts() const;

 private:
  std::vector<std::string> expand_repository(const std::string& name, const std::string& extension);
  std::vector<std::string> matches(const std::string& name, const std::string& extension);
  Lease find(const Piece& piece);
  void enqueue(const Piece& piece, std::function<void()> job, std::unique_lock<std::mutex>& held);
  void work();

  const CacheSettings settings_;
  Client client_;
  Cache cache_;
  std::mutex mutex_;  // guards the members below
  std::map<std::string, ObjectState> states_;
  std::deque<std::pair<Piece, std::function<void()>>> queue_;
  std::set<Piece> queued_;  // the pieces in the queue, and those being fetched
  std::map<std::string, std::shared_future<std::string>> small_;
  std::deque<std::string> small_order_;  // the addresses in small_, the first one first
  std::condition_variable wakes_;
  bool stopped_ = false;
  std::atomic<std::int64_t> hits_ = 0, misses_ = 0;
  std::vector<std::thread> threads_;
};

/// A file by its local name or its address. A remote file is a copy in the cache, which exists as long as this object.
class LocalFile {
 public:
  explicit LocalFile(const std::string& name);
  const std::string& path() const { return copy_ ? copy_->path() : name_; }

 private:
  std::string name_;
  std::optional<Lease> copy_;
};

/// Returns the store of this process, which is made at the first call. Its settings are those of use_settings(); by default, those of
/// CacheSettings with the limit $TESSERA_REMOTE_CACHE_MB.
std::shared_ptr<Store> store();
/// Sets the settings of the store. A store that is in use stays as it is.
void use_settings(const CacheSettings& settings);
/// Returns the counts of all requests so far; zero if there were none.
RemoteCounts counts();

}  // namespace tessera::remote
