#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/io/tar_format.h"
#include "src/io/tar_header.h"
#include <tessera/base/error.h>
#include <tessera/io/tar.h>

namespace tessera::io {

RandomAccessFile::RandomAccessFile(const std::string& path) : path_(path) {
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) user_error(path, ": cannot be opened: ", std::strerror(errno));
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    user_error(path, ": expected a file", S_ISDIR(status.st_mode) ? ", got a folder" : "");
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

RandomAccessFile::~RandomAccessFile() {
  ::close(descriptor_);
}

std::string RandomAccessFile::read(std::uint64_t offset, std::uint64_t size) const {
  if (offset >= size_) return {};
  std::string out(std::min(size, size_ - offset), '\0');
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t count = ::pread(descriptor_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) user_error(path_, ": cannot be read at byte ", offset + done, ": ", std::strerror(errno));
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  out.resize(done);
  return out;
}

TarIndex index_tar(const std::string& path) {
  const RandomAccessFile file(path);
  TarIndex index;
  TarHeaderReader reader;
  TarHeader header;
  std::uint64_t at = 0;
  const auto stop = [&](std::string problem) {
    index.problem = std::move(problem);
    index.problem_offset = at;
    return index;
  };
  while (at < file.size()) {
    const std::string block = file.read(at, kBlock);
    const char* compression = at == 0 ? compression_of(block) : nullptr;
    if (compression != nullptr)
      user_error(path, ": is compressed with ", compression, "; expected a plain tar: decompress it first");
    if (block.size() < kBlock) return stop("the archive ends in the middle of a header");
    if (is_zero_block(block)) break;
    if (std::string problem = reader.read(block, header); !problem.empty()) {
      if (at == 0) user_error(path, ": is no tar archive (its first header's checksum is wrong)");
      return stop(std::move(problem));
    }
    std::uint64_t data = at + kBlock;
    for (bool more = header.continued; more; data += kBlock) {
      const std::string next = file.read(data, kBlock);
      if (next.size() < kBlock) return stop("the archive ends in the middle of a header");
      more = TarHeaderReader::continues(next);
    }
    if (header.size > file.size() - data) {
      index.cut_member = header.name;
      return stop("the archive ends in the middle of " + (header.extended ? "a header" : header.name));
    }
    if (header.extended) {
      if (header.size > kLongestExtension) return stop("an extended header is too long");
      if (std::string problem = reader.extend(file.read(data, header.size)); !problem.empty())
        return stop(std::move(problem));
    } else if (header.regular) {
      index.members.push_back({header.name, data, header.size});
    }
    at = data + (header.size + kBlock - 1) / kBlock * kBlock;
    if (at > file.size()) return stop("the archive ends in the middle of a block");
  }
  return index;
}

}  // namespace tessera::io
