#include "src/remote/cache.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "src/base/clock.h"
#include "src/base/digest.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>

namespace tessera::remote {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kPoll{20};
constexpr double kTellAfter = 60;  // seconds of waiting for room
constexpr const char* kPart = ".part";

bool lock(int descriptor, int how) {
  int failed = 0;
  do failed = ::flock(descriptor, how);
  while (failed != 0 && errno == EINTR);
  return failed == 0;
}

OpenFile open_file(const std::string& path, int flags) {
  return OpenFile(::open(path.c_str(), flags | O_CLOEXEC, 0644));
}

[[noreturn]] void fail(const fs::path& folder, int cause) {
  user_error(
      folder.string(), " (data.cache.folder): cannot be written: ", std::strerror(cause),
      cause == ENOSPC || cause == EDQUOT ? ": free disk space, set data.cache.size_mb to less, or name a folder on another disk" : "");
}

// Returns whether a file was last used more than a second ago. The time of use is written only then, because it costs more than a read.
bool is_old(const struct stat& status) {
  return status.st_mtim.tv_sec + 1 < std::time(nullptr);
}

OpenFile lock_folder(const fs::path& folder) {
  OpenFile file = open_file((folder / "lock").string(), O_RDWR | O_CREAT);
  if (!file.is_open() || !lock(file.descriptor(), LOCK_EX)) fail(folder, errno);
  return file;
}

// Returns the end of a name, with _ in place of characters that could trouble a shell.
std::string plain_name(std::string name) {
  constexpr std::size_t longest = 60;
  if (name.size() > longest) name = name.substr(name.size() - longest);
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0 && c != '.' && c != '_' && c != '-'; }, '_');
  return name;
}

/// A file in the folder.
struct Entry {
  std::string path;
  std::uint64_t size = 0;
  fs::file_time_type used;
};

}  // namespace

fs::path cache_folder(const CacheSettings& settings) {
  const auto variable = [](const char* name) { return std::getenv(name) == nullptr ? std::string() : std::string(std::getenv(name)); };
  if (!settings.folder.empty()) return settings.folder.name;
  if (const std::string named = variable("TESSERA_REMOTE_CACHE"); !named.empty()) return named;
  if (const std::string caches = variable("XDG_CACHE_HOME"); !caches.empty()) return fs::path(caches) / "tessera" / "remote";
  if (const std::string home = variable("HOME"); !home.empty()) return fs::path(home) / ".cache" / "tessera" / "remote";
  user_error("data.cache.folder is not set, and neither is HOME: name a folder for the files that are fetched");
}

std::string run_folder(const CacheSettings& settings, const std::string& address) {
  std::string name = address;
  while (name.ends_with('/')) name.pop_back();
  const std::string id = hexadecimal(fingerprint(name));
  return (fs::absolute(cache_folder(settings)) / "runs" / concat(id, "-", plain_name(name.substr(name.rfind('/') + 1)))).string();
}

OpenFile::~OpenFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

bool OpenFile::write(std::uint64_t offset, const char* bytes, std::size_t size) const {
  while (size > 0) {
    const ssize_t written = ::pwrite(descriptor_, bytes, size, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes += written;
    offset += static_cast<std::uint64_t>(written);
    size -= static_cast<std::size_t>(written);
  }
  return true;
}

Cache::Cache(const CacheSettings& settings, Client& client)
    : client_(client),
      limit_(static_cast<std::uint64_t>(settings.size_mb) << 20),
      folder_(fs::absolute(cache_folder(settings))) {
  std::error_code failed;
  fs::create_directories(folder_ / "objects", failed);
  if (failed) fail(folder_, failed.value());
}

std::string Cache::path_of(const Piece& piece, const ObjectState& state) const {
  const Address parts = parse_address(piece.address);
  // The version of a file on the Hub tells its content, so files that several revisions have are fetched once.
  const std::string place = parts.is_hub() ? concat("hf://", parts.host, "/", parts.key) : piece.address;
  std::string whole = concat(place, "\n", state.size, "\n", state.version);
  if (!piece.is_whole()) whole += concat("\n", piece.first, "\n", piece.size);
  const std::string id = concat(hexadecimal(fingerprint(whole)), hexadecimal(fingerprint(whole, 1)));
  return (folder_ / "objects" / concat(id, "-", plain_name(file_name(piece.address)))).string();
}

bool Cache::holds(const Piece& piece, const ObjectState& state) const {
  const std::string path = path_of(piece, state);
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return false;
  if (is_old(status)) ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
  return true;
}

std::optional<OpenFile> Cache::find(const std::string& path) const {
  while (true) {
    OpenFile file = open_file(path, O_RDONLY);
    if (!file.is_open() && errno == ENOENT) return std::nullopt;
    if (!file.is_open() || !lock(file.descriptor(), LOCK_SH)) fail(folder_, errno);
    struct stat status {};
    if (::fstat(file.descriptor(), &status) == 0 && status.st_nlink == 0) continue;  // deleted before it was locked
    if (is_old(status)) ::futimens(file.descriptor(), nullptr);
    return file;
  }
}

// Deletes files until one of `size` bytes has room. Returns false if too many files are in use. The folder must be locked.
bool Cache::make_room(std::uint64_t size) const {
  std::vector<Entry> copies;
  std::uint64_t total = size;
  for (const auto& entry : fs::directory_iterator(folder_ / "objects")) {
    std::error_code gone;
    const Entry found{entry.path().string(), entry.file_size(gone), entry.last_write_time(gone)};
    if (gone) continue;
    if (found.path.ends_with(kPart)) {
      const OpenFile file = open_file(found.path, O_RDONLY);
      if (file.is_open() && lock(file.descriptor(), LOCK_EX | LOCK_NB)) {
        ::unlink(found.path.c_str());  // of a process that was killed
        continue;
      }
    } else {
      copies.push_back(found);
    }
    total += found.size;
  }
  std::ranges::sort(copies, {}, &Entry::used);
  for (const Entry& copy : copies) {
    if (total <= limit_) break;
    const OpenFile file = open_file(copy.path, O_RDONLY);
    if (!file.is_open() || !lock(file.descriptor(), LOCK_EX | LOCK_NB)) continue;
    ::unlink(copy.path.c_str());
    total -= copy.size;
  }
  return total <= limit_;
}

// Begins to fetch an object: returns its locked file of `size` bytes. Returns a closed file if another thread or process fetches the
// object or has fetched it, or if there is no room; the caller then tries again.
OpenFile Cache::begin(const std::string& path, std::uint64_t size) const {
  const OpenFile folder = lock_folder(folder_);
  std::error_code ignored;
  if (fs::exists(path, ignored)) return OpenFile();
  const std::string name = path + kPart;
  OpenFile part = open_file(name, O_RDWR | O_CREAT);
  if (!part.is_open()) fail(folder_, errno);
  if (!lock(part.descriptor(), LOCK_EX | LOCK_NB)) return OpenFile();
  int failed = ::ftruncate(part.descriptor(), 0) == 0 ? 0 : errno;
  const bool room = failed == 0 && make_room(size);
  if (room && size > 0) failed = ::fallocate(part.descriptor(), 0, 0, static_cast<off_t>(size)) == 0 ? 0 : errno;
  if (failed == EOPNOTSUPP) failed = ::ftruncate(part.descriptor(), static_cast<off_t>(size)) == 0 ? 0 : errno;
  if (room && failed == 0) return part;
  ::unlink(name.c_str());
  if (failed != 0) fail(folder_, failed);
  return OpenFile();
}

std::string Cache::link_folder(const std::string& label, const std::vector<std::pair<std::string, std::string>>& links) const {
  const fs::path all = folder_ / "models";
  std::string content;
  for (const auto& [name, copy] : links) content += concat(name, "\n", copy, "\n");
  const fs::path out = all / concat(hexadecimal(fingerprint(content)), "-", plain_name(label)), aside = all / ".new";
  try {
    const OpenFile lock = lock_folder(folder_);
    fs::create_directories(all);
    fs::remove_all(aside);  // of a process that was killed
    const auto is_gone = [](const fs::directory_entry& link) { return !fs::exists(link.path()); };
    for (const auto& each : std::vector<fs::directory_entry>(fs::directory_iterator(all), {}))
      if (std::any_of(fs::directory_iterator(each), {}, is_gone)) fs::remove_all(each);
    if (fs::exists(out)) return out.string();
    fs::create_directory(aside);
    for (const auto& [name, copy] : links) fs::create_symlink(fs::absolute(copy), aside / name);
    fs::rename(aside, out);
  } catch (const fs::filesystem_error& error) {
    fail(folder_, error.code().value());
  }
  return out.string();
}

Lease Cache::open(const Piece& piece, const ObjectState& state) const {
  const std::string& address = piece.address;
  const std::uint64_t size = piece.is_whole() ? state.size : piece.size;
  if (size > limit_)
    user_error(address, piece.is_whole() ? ": has " : ": one of its row groups has ", format_bytes(static_cast<double>(size)),
               ", more than data.cache.size_mb allows: set it to ", (size >> 20) + 1, " or more");
  const std::string path = path_of(piece, state), name = path + kPart;
  const double begun = steady_seconds();
  bool waited = false, told = false;
  while (true) {
    if (auto file = find(path)) return {path, *std::move(file), waited, piece.first};
    waited = true;
    if (client_.stopped()) user_error(address, ": the transfer was stopped");
    OpenFile part = begin(path, size);
    if (!part.is_open()) {
      if (steady_seconds() - begun > kTellAfter && !std::exchange(told, true))
        log::warning(address, ": has been waiting for ", kTellAfter, " s, because another process fetches it or all files in ",
                     folder_.string(), " are in use: if it goes on, set data.cache.size_mb to more");
      std::this_thread::sleep_for(kPoll);
      continue;
    }
    try {
      const bool found = client_.fetch(piece, state, name, [&](std::uint64_t offset, const char* bytes, std::size_t count) {
        if (!part.write(offset - piece.first, bytes, count)) fail(folder_, errno);
      });
      if (!found) throw OnlyWholeFiles();
      if (::fsync(part.descriptor()) != 0) fail(folder_, errno);
      const OpenFile folder = lock_folder(folder_);
      if (::rename(name.c_str(), path.c_str()) != 0) fail(folder_, errno);
      lock(part.descriptor(), LOCK_SH);
    } catch (...) {
      const OpenFile folder = lock_folder(folder_);
      ::unlink(name.c_str());
      throw;
    }
    struct stat status {};
    if (::fstat(part.descriptor(), &status) != 0 || status.st_nlink == 0) continue;  // deleted while the lock changed
    return {path, std::move(part), true, piece.first};
  }
}

}  // namespace tessera::remote
