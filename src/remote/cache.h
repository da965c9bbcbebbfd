#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/remote/client.h"

namespace tessera::remote {

/// An open file, which may hold a lock. The kernel closes it and releases the lock if the process ends, however it ends.
class OpenFile {
 public:
  explicit OpenFile(int descriptor = -1) : descriptor_(descriptor) {}
  ~OpenFile();
  OpenFile(OpenFile&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  OpenFile& operator=(OpenFile&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  int descriptor() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }

 private:
  int descriptor_;
};

/// A complete local copy of an object, which is not deleted as long as this exists.
class Lease {
 public:
  Lease(std::string path, OpenFile file, bool waited) : path_(std::move(path)), file_(std::move(file)), waited_(waited) {}
  const std::string& path() const { return path_; }
  /// Returns whether there was no copy at first.
  bool waited() const { return waited_; }

 private:
  std::string path_;
  OpenFile file_;
  bool waited_;
};

/// Returns the local folder of a run that is stored at this address: FOLDER/runs/ID-NAME, where ID names the address, as an absolute path.
std::string run_folder(const CacheSettings& settings, const std::string& address);

/// Local copies of objects in a folder of limited size, for the threads and processes of a machine. The least recently used copies are
/// deleted before a new one is fetched, so the files never take more than the limit, those that are being fetched included.
///
/// FOLDER/objects/ID-NAME holds a complete copy. ID names address, size and version, so a changed object is another file. A lease is a
/// shared flock(2) on the file; only files without locks are deleted. ID-NAME.part is being fetched by the process that holds its exclusive
/// lock, and has the object's whole size from the start; if nobody holds its lock, its process was killed, and the file is deleted. Whoever
/// creates or deletes files holds the lock FOLDER/lock.
class Cache {
 public:
  /// Creates the folder. The client must outlive the cache.
  Cache(const CacheSettings& settings, Client& client);

  /// Returns a copy of the object; fetches it if there is none. If another thread or process is fetching it, waits for that one. Throws
  /// UserError if the object cannot be fetched, has changed or is larger than the limit, or if the disk is full.
  Lease open(const std::string& address, const ObjectState& state) const;
  /// Returns whether there is a copy, and counts it as just used.
  bool holds(const std::string& address, const ObjectState& state) const;

  /// Returns a folder FOLDER/models/ID-LABEL of links to copies that are leased; `links` are their names and paths. Removes the folders
  /// whose copies are gone.
  std::string link_folder(const std::string& label, const std::vector<std::pair<std::string, std::string>>& links) const;

  const std::filesystem::path& folder() const { return folder_; }
  std::uint64_t limit() const { return limit_; }

 private:
  std::string path_of(const std::string& address, const ObjectState& state) const;
  std::optional<OpenFile> find(const std::string& path) const;
  bool make_room(std::uint64_t size) const;
  OpenFile begin(const std::string& path, std::uint64_t size) const;

  Client& client_;
  const std::uint64_t limit_;
  const std::filesystem::path folder_;
};

}  // namespace tessera::remote
