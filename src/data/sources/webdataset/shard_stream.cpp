#include "src/data/sources/webdataset/shard_stream.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "src/base/printable.h"
#include "src/io/tar_header.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

constexpr std::string_view kCommand = "pipe:";
constexpr std::uint64_t kLargestMember = std::uint64_t{1} << 60;
constexpr std::uint64_t kLargestStep = 1 << 20;  // memory grows by at most this many bytes at a time, because headers may give false sizes
constexpr std::uint64_t kLargestFile = 1 << 30;  // maximum bytes of a file; without a limit, compressed zeros could fill the memory

bool has_files(const std::string& folder, const std::string& extension) {
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failed))
    if (entry.path().filename().string().ends_with(extension)) return true;
  return false;
}

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

void TarStream::pass_over_content() {
  std::array<char, 1 << 14> buffer{};
  for (std::uint64_t size = std::exchange(content_, 0) + std::exchange(filling_, 0); size > 0;) {
    const std::size_t count = bytes_->read(buffer.data(), static_cast<std::size_t>(std::min<std::uint64_t>(size, buffer.size())));
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
  pass_over_content();
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
    pass_over_content();
  }
}

std::string TarStream::content() {
  if (content_ > kLargestFile) throw StreamError(concat(name_, " has ", content_, " bytes: too many for a sample"));
  std::string out = take(content_);
  if (out.size() < content_) throw StreamError("the archive ends in the middle of " + name_);
  content_ = 0;
  return out;
}

const std::string* RawSample::find(const std::string& name) const {
  for (const auto& [each, bytes] : members)
    if (each == name) return &bytes;
  return nullptr;
}

bool StreamGrouping::begins(const std::string& key, const std::string& name) {
  const bool is_new = names_.empty() || key != key_ || names_.contains(name);
  if (is_new) {
    names_.clear();
    key_ = key;
    if (!keys_.insert(std::hash<std::string>()(key)).second && repeated_++ == 0) repeated_example_ = key;
  }
  names_.insert(name);
  return is_new;
}

ShardStream::ShardStream(const std::string& address, const StreamWaitPolicy& wait_policy,
                         std::function<bool(const std::string&)> wanted)
    : address_(address), wanted_(std::move(wanted)), tar_(decompress(open_bytes(address, wait_policy))) {}

std::shared_ptr<RawSample> ShardStream::next() {
  io::TarMember member;
  for (std::string key, name; tar_.next(member);) {
    if (!split_member_path(member.name, key, name)) continue;
    std::shared_ptr<RawSample> complete;
    if (grouping_.begins(key, name)) {
      complete = std::exchange(open_, std::make_shared<RawSample>());
      open_->shard = address_;
      open_->key = key;
    }
    if (wanted_(name)) open_->members.emplace_back(name, tar_.content());
    if (complete) return complete;
  }
  return std::exchange(open_, nullptr);
}

std::int64_t count_streamed(const std::vector<io::TarMember>& members) {
  StreamGrouping grouping;
  std::int64_t count = 0;
  std::string key, name;
  for (const io::TarMember& member : members)
    if (split_member_path(member.name, key, name) && grouping.begins(key, name)) ++count;
  return count;
}

io::TarIndex index_stream(const std::string& address, const StreamWaitPolicy& wait_policy) {
  io::TarIndex index;
  try {
    TarStream tar(decompress(open_bytes(address, wait_policy)));
    for (io::TarMember member; tar.next(member);) index.members.push_back(member);
    index.joined = tar.joined();
    index.ignored = tar.ignored();
  } catch (const StreamError& error) {
    index.problem = error.what();
  }
  return index;
}

bool is_stream(const std::string& address) {
  if (address.starts_with(kCommand)) return true;
  for (const char* ending : {".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz"})
    if (address.ends_with(ending)) return true;
  return false;
}

DataFile shard_file(const std::string& address) {
  if (address.starts_with(kCommand)) return {address, ""};
  return {std::filesystem::path(address).filename().string(), address};
}

std::vector<std::string> expand_shards(const PathList& paths) {
  std::vector<std::string> out;
  const auto append = [&](const std::vector<std::string>& more) { out.insert(out.end(), more.begin(), more.end()); };
  PathList files;
  for (const std::string& item : paths.items) {
    if (item.starts_with(kCommand)) {
      // Commands may contain commas, so "::" separates the commands of an item.
      std::string rest = item;
      for (std::size_t end = 0; end != std::string::npos; rest = end == std::string::npos ? "" : rest.substr(end + 2)) {
        end = rest.find("::" + std::string(kCommand));
        append(expand_braces(rest.substr(0, end)));
      }
      continue;
    }
    std::string extension = ".tar";
    std::error_code ignored;
    const std::string folder = local_path(item);
    if (std::filesystem::is_directory(folder, ignored) && !has_files(folder, extension))
      extension = has_files(folder, ".tar.gz") ? ".tar.gz" : has_files(folder, ".tgz") ? ".tgz" : extension;
    append(expand_paths({{item}, paths.origin, paths.searched}, extension, true));
  }
  if (out.empty()) append(expand_paths(paths, ".tar", true));  // throws, because `paths` names nothing; the error says what is missing
  return out;
}

}  // namespace tessera
