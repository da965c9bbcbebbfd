#include "src/data/sources/webdataset/tar_stream.h"

#include <algorithm>
#include <array>

#include "src/base/printable.h"
#include "src/io/tar.h"
#include <tessera/base/error.h>

namespace tessera {

namespace {
constexpr std::uint64_t kLargestMember = std::uint64_t{1} << 60;
constexpr std::uint64_t kLargestStep = 1 << 20;  // memory grows by at most this many bytes at a time, because headers may give false sizes
constexpr std::uint64_t kLargestFile = 1 << 30;  // maximum bytes of a file; without a limit, compressed zeros could fill the memory
}  // namespace

std::string TarStream::take(std::uint64_t size) {
  std::string out;
  while (out.size() < size) {
    const std::size_t begin = out.size();
    out.resize(begin + static_cast<std::size_t>(std::min<std::uint64_t>(size - begin, kLargestStep)));
    const std::size_t count = bytes_->read(out.data() + begin, out.size() - begin);
    out.resize(begin + count);
    at_ += count;
    if (count == 0) break;
  }
  return out;
}

void TarStream::pass_over(std::uint64_t size) {
  for (std::array<char, 1 << 14> buffer{}; size > 0;) {
    const std::size_t count =
        bytes_->read(buffer.data(), static_cast<std::size_t>(std::min<std::uint64_t>(size, buffer.size())));
    at_ += count;
    size -= count;
    if (count == 0) throw StreamError("the archive ends in the middle of " + name_);
  }
}

// Reads to the end of the stream, because a command's exit code is checked only there.
std::uint64_t TarStream::drain() {
  std::array<char, 1 << 14> buffer{};
  std::uint64_t total = 0;
  while (const std::size_t count = bytes_->read(buffer.data(), buffer.size())) total += count;
  return total;
}

bool TarStream::next(io::TarMember& member) {
  pass_over(content_ + filling_);
  content_ = filling_ = 0;
  io::TarHeaderReader reader;
  while (true) {
    const std::uint64_t begin = at_;
    const std::string block = take(io::kBlock);
    if (block.empty() && begin > 0) return false;
    if (!block.empty() && io::is_zero_block(block)) {
      ended_ = true;
      continue;
    }
    io::TarHeader header;
    const std::string problem =
        block.size() < io::kBlock ? "the archive ends in the middle of a header" : reader.read(block, header);
    if (!problem.empty() && ended_) {
      ignored_ = block.size() + drain();
      return false;
    }
    if (!problem.empty() && begin == 0) {
      const std::string other = io::not_a_tar(block);
      throw StreamError(other.empty() ? concat("has ", block.size(), " bytes, which are not a tar archive") : other);
    }
    if (!problem.empty()) throw StreamError(block.size() < io::kBlock ? problem : concat(problem, " (byte ", begin, ")"));
    joined_ = joined_ || ended_;
    ended_ = false;
    name_ = header.extended ? "a header" : printable(header.name);
    for (bool more = header.continued; more;) {
      const std::string follows = take(io::kBlock);
      if (follows.size() < io::kBlock) throw StreamError("the archive ends in the middle of a header");
      more = io::TarHeaderReader::continues(follows);
    }
    if (header.size > kLargestMember) throw StreamError("a member's size is not a number");
    content_ = header.size;
    filling_ = (io::kBlock - header.size % io::kBlock) % io::kBlock;
    if (header.extended) {
      if (header.size > io::kLongestExtension) throw StreamError("an extended header is too long");
      if (const std::string damage = reader.extend(content()); !damage.empty()) throw StreamError(damage);
    } else if (header.regular) {
      member = {header.name, at_, header.size};
      if (first_.empty()) first_ = header.name;
      return true;
    }
    pass_over(content_ + filling_);
    content_ = filling_ = 0;
  }
}

std::string TarStream::content() {
  if (content_ > kLargestFile) throw StreamError(concat(name_, " has ", content_, " bytes: too many for a sample"));
  std::string out = take(content_);
  if (out.size() < content_) throw StreamError("the archive ends in the middle of " + name_);
  content_ = 0;
  return out;
}

}  // namespace tessera
