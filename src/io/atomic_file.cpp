#include <tessera/io/atomic_file.h>

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <tessera/base/error.h>

namespace tessera::io {

namespace fs = std::filesystem;

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  std::error_code error;
  // The file that a symbolic link points to is replaced, not the link.
  if (fs::is_symlink(path_, error))
    if (const fs::path target = fs::canonical(path_, error); !error) path_ = target.string();
  const fs::file_status status = fs::status(path_, error);
  if (fs::is_directory(status)) user_error(path_, ": is a folder; name a file");
  if (fs::exists(status) && !fs::is_regular_file(status)) user_error(path_, ": is not a regular file");
  error.clear();  // a missing path is not an error
  temporary_ = path_ + ".tmp." + std::to_string(::getpid());
  const fs::path folder = fs::path(path_).parent_path();
  if (!folder.empty()) fs::create_directories(folder, error);
  if (error) user_error(path_, ": cannot create the folder: ", error.message());
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail("cannot create the file");
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::fail(const char* action) {
  const int cause = errno;
  if (descriptor_ >= 0) {
    ::close(descriptor_);
    ::unlink(temporary_.c_str());
    descriptor_ = -1;
  }
  user_error(path_, ": ", action, ": ", std::strerror(cause));
}

void AtomicFile::write(const void* data, std::size_t size) {
  if (!append(descriptor_, {static_cast<const char*>(data), size})) fail("cannot write");
}

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) fail("cannot write");
  const int descriptor = descriptor_;
  descriptor_ = -1;
  ::close(descriptor);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int cause = errno;
    ::unlink(temporary_.c_str());
    user_error(path_, ": cannot rename ", temporary_, ": ", std::strerror(cause));
  }
  // Without this fsync of the folder, a power cut could lose the rename.
  const std::string folder = fs::path(path_).parent_path().string();
  const int handle = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle >= 0) {
    ::fsync(handle);
    ::close(handle);
  }
}

void write_file(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

bool append(int descriptor, std::string_view text) {
  const off_t before = ::lseek(descriptor, 0, SEEK_END);
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int cause = errno;
      static_cast<void>(::ftruncate(descriptor, before) == 0);  // if this fails too, nothing more can be done
      errno = cause;
      return false;
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

std::string read_file(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) user_error(path, ": is a folder, expected a file");
  std::ifstream in(path, std::ios::binary);
  if (!in) user_error(path, ": cannot read: ", std::strerror(errno));
  std::string content, block(1 << 16, '\0');
  while (in.read(block.data(), std::ssize(block)) || in.gcount() > 0)
    content.append(block, 0, static_cast<std::size_t>(in.gcount()));
  if (in.bad()) user_error(path, ": cannot read: ", std::strerror(errno));
  return content;
}

}  // namespace tessera::io
