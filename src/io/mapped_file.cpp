#include <cassert>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/io/mapped_file.h"
#include <tessera/base/error.h>
#include <tessera/io/atomic_file.h>

namespace tessera::io {

int open_regular_file(const std::string& path, std::uint64_t& size) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // O_NONBLOCK, so that opening a pipe does not block
  if (descriptor < 0) user_error(path, ": cannot read: ", std::strerror(errno));
  struct stat status {};
  const bool known = ::fstat(descriptor, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    user_error(path, ": ", known && S_ISDIR(status.st_mode) ? "is a folder, expected a file" : "is not a regular file");
  }
  size = static_cast<std::uint64_t>(status.st_size);
  return descriptor;
}

MappedFile::MappedFile(const std::string& path) {
  std::uint64_t size = 0;
  const int descriptor = open_regular_file(path, size);
  size_ = static_cast<std::size_t>(size);
  void* mapped = size_ > 0 ? ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor, 0) : nullptr;
  const int cause = errno;
  ::close(descriptor);
  if (mapped == MAP_FAILED) user_error(path, ": cannot be mapped into memory: ", std::strerror(cause));
  data_ = static_cast<const char*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
}

ScratchFile::ScratchFile(const std::string& folder) : folder_(folder.empty() ? "." : folder) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) user_error(folder_, ": cannot create the folder: ", error.message());
  std::string name = folder_ + "/.scratch.XXXXXX";
  descriptor_ = ::mkostemp(name.data(), O_CLOEXEC);
  if (descriptor_ < 0) user_error(folder_, ": cannot create a file there: ", std::strerror(errno));
  ::unlink(name.c_str());
}

ScratchFile::~ScratchFile() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
  ::close(descriptor_);
}

void ScratchFile::append(std::string_view text) {
  assert(data_ == nullptr && "ScratchFile: append() after bytes()");
  if (!io::append(descriptor_, text)) user_error(folder_, ": cannot write there: ", std::strerror(errno));
  size_ += text.size();
}

std::string_view ScratchFile::bytes() {
  if (data_ == nullptr && size_ > 0) {
    void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor_, 0);
    if (mapped == MAP_FAILED) user_error(folder_, ": cannot be mapped into memory: ", std::strerror(errno));
    data_ = static_cast<const char*>(mapped);
  }
  return {data_, size_};
}

}  // namespace tessera::io
