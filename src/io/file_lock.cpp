#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include "src/base/clock.h"
#include "src/base/host.h"
#include "src/io/file_lock.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>

namespace tessera::io {
namespace {

// This lock belongs to the open file description. So the kernel releases it only when the last descriptor of this description is closed,
// not when some other descriptor of the same file is closed.
bool lock_whole(int descriptor) {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  return ::fcntl(descriptor, F_OFD_SETLK, &whole) == 0;
}

std::string read_holder(int descriptor) {
  std::array<char, 256> text{};
  const ssize_t size = ::pread(descriptor, text.data(), text.size(), 0);
  const std::string holder(strip(std::string_view(text.data(), static_cast<std::size_t>(size > 0 ? size : 0))));
  return holder.empty() ? "another process" : holder;
}

std::string this_process() {
  return concat("process ", ::getpid(), " on ", host_name(), ", since ", utc_now());
}

// Writes who holds the lock. Ignores failures, because only messages use this text.
void write_holder(int descriptor, const std::string& holder) {
  if (::ftruncate(descriptor, 0) != 0) return;
  [[maybe_unused]] const ssize_t written = ::pwrite(descriptor, holder.data(), holder.size(), 0);
}

}  // namespace

std::unique_ptr<FileLock> FileLock::take(const std::string& path, std::string& holder) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0) user_error(path, ": cannot open the lock: ", std::strerror(errno));
  std::unique_ptr<FileLock> lock(new FileLock(descriptor));
  if (lock_whole(descriptor)) {
    write_holder(descriptor, this_process() + "\n");
    return lock;
  }
  if (errno == EAGAIN || errno == EACCES) {
    holder = read_holder(descriptor);
    ::close(std::exchange(lock->descriptor_, -1));
    return nullptr;
  }
  log::warning(path, ": cannot be locked (", std::strerror(errno), "): a second process that uses it will not be noticed");
  return lock;
}

FileLock::~FileLock() {
  if (descriptor_ < 0) return;
  write_holder(descriptor_, "");
  ::close(descriptor_);
}

}  // namespace tessera::io
