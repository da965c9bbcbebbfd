#include "src/io/scratch_file.h"

#include <cassert>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/mman.h>
#include <unistd.h>

#include <tessera/base/error.h>

namespace tessera::io {

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

void ScratchFile::append(const void* data, std::size_t size) {
  assert(data_ == nullptr && "ScratchFile: append() after bytes()");
  const char* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(descriptor_, bytes, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) user_error(folder_, ": cannot write there: ", std::strerror(errno));
    bytes += written;
    size -= static_cast<std::size_t>(written);
    size_ += static_cast<std::size_t>(written);
  }
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
