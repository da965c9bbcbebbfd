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
  /// Writes all bytes from `offset` on. Returns false if that fails; errno says why.
  bool write(std::uint64_t offset, const char* bytes, std::size_t size) const;

 private:
  int descriptor_;
};

/// A complete local copy of a piece of an object, which is not deleted as long as this exists.
class Lease {
 public:
  Lease(std::string path, OpenFile file, bool waited, std::uint64_t first = 0)
      : path_(std::move(path)), file_(std::move(file)), waited_(waited), first_(first) {}
  const std::string& path() const { return path_; }
  /// Returns the offset, in the object, of the file's first byte.
  std::uint64_t first() const { return first_; }
  /// Returns whether there was no copy at first.
  bool waited() const { return waited_; }

 private:
  std::string path_;
  OpenFile file_;
  bool waited_;
  std::uint64_t first_;
};

/// Returns the local folder of a run that is stored at this address: FOLDER/runs/ID-NAME, where ID names the address, as an absolute path.
std::string run_folder(const CacheSettings& settings, const std::string& address);

/// Thrown if a server does not send pieces of its files.
struct OnlyWholeFiles {};

/// Returns the folder that the settings or the environment name.
std::filesystem::path cache_folder(const CacheSettings& settings);

/// Local copies of objects and pieces of objects in a folder of limited size, for the processes of a machine. The least recently used
/// copies are deleted before a new one is fetched, so the files never take more than the limit, those that are being fetched included.
///
/// FOLDER/objects/ID-NAME holds a complete copy. ID names address, size, version and piece, so a changed object is another file. A lease is
/// a shared flock(2) on the file; only files without locks are deleted. ID-NAME.part is being fetched by the process that holds its
/// exclusive lock, and has the object's whole size from the start; if nobody holds its lock, its process was killed, and the file is
/// deleted. Whoever creates or deletes files holds the lock FOLDER/lock.
class Cache {
 public:
  /// Creates the folder. The client must outlive the cache.
  Cache(const CacheSettings& settings, Client& client);

  /// Returns a copy of the piece; fetches it if there is none. If another thread or process is fetching it, waits for that one. `state` is
  /// that of the whole object. Throws UserError if the object cannot be fetched or has changed, if the piece is larger than the limit, or
  /// if the disk is full. Throws OnlyWholeFiles.
  Lease open(const Piece& piece, const ObjectState& state) const;
  /// Returns whether there is a copy, and counts it as just used.
  bool holds(const Piece& piece, const ObjectState& state) const;

  /// Returns a folder FOLDER/models/ID-LABEL of links to copies that are leased; `links` are their names and paths. Removes the folders
  /// whose copies are gone.
  std::string link_folder(const std::string& label, const std::vector<std::pair<std::string, std::string>>& links) const;

  const std::filesystem::path& folder() const { return folder_; }
  std::uint64_t limit() const { return limit_; }

 private:
  std::string path_of(const Piece& piece, const ObjectState& state) const;
  std::optional<OpenFile> find(const std::string& path) const;
  bool make_room(std::uint64_t size) const;
  OpenFile begin(const std::string& path, std::uint64_t size) const;

  Client& client_;
  const std::uint64_t limit_;
  const std::filesystem::path folder_;
};

}  // namespace tessera::remote
