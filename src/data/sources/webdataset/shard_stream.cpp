#include "src/data/sources/webdataset/shard_stream.h"

#include <filesystem>

#include "src/data/sources/webdataset/shard_index.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

constexpr std::string_view kCommand = "pipe:";

bool has_files(const std::string& folder, const std::string& extension) {
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failed))
    if (entry.path().filename().string().ends_with(extension)) return true;
  return false;
}

}  // namespace

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
