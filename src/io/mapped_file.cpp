#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/io/mapped_file.h"
#include <tessera/base/error.h>

namespace tessera::io {

MappedFile::MappedFile(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // O_NONBLOCK, so that opening a pipe does not block
  if (descriptor < 0) user_error(path, ": cannot read: ", std::strerror(errno));
  struct stat status {};
  const bool known = ::fstat(descriptor, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    user_error(path, ": ", known && S_ISDIR(status.st_mode) ? "is a folder, expected a file" : "is not a regular file");
  }
  size_ = static_cast<std::size_t>(status.st_size);
  void* mapped = size_ > 0 ? ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor, 0) : nullptr;
  const int cause = errno;
  ::close(descriptor);
  if (mapped == MAP_FAILED) user_error(path, ": cannot be mapped into memory: ", std::strerror(cause));
  data_ = static_cast<const char*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
}

}  // namespace tessera::io
