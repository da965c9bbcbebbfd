#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "src/data/formats/byte_stream.h"
#include "src/data/sources/webdataset/shards.h"
#include "src/io/tar.h"
#include <tessera/data/source.h>

namespace tessera {

/// Reads the members of a tar in order, from a stream.
class TarStream {
 public:
  explicit TarStream(std::unique_ptr<ByteStream> bytes) : bytes_(std::move(bytes)) {}

  /// Advances to the next plain file and writes its name, offset and size to `member`. Skips the unread rest of the previous file. At the
  /// end of the stream, returns false; another archive may follow the end of an archive (cat a.tar b.tar). Throws StreamError if the stream
  /// is not a tar, is truncated or is damaged.
  bool next(io::TarMember& member);

  /// Returns the bytes of the current file.
  std::string content();

  /// As in io::TarIndex, for the stream so far.
  bool joined() const { return joined_; }
  std::uint64_t ignored() const { return ignored_; }
  /// Returns the name of the first plain file; empty before it.
  const std::string& first_member() const { return first_; }

 private:
  std::string take(std::uint64_t size);
  void pass_over_content();
  std::uint64_t drain();

  std::unique_ptr<ByteStream> bytes_;
  std::uint64_t at_ = 0;
  std::uint64_t content_ = 0, filling_ = 0;  // unread bytes of the current member, and of the padding after it
  std::string name_, first_;
  bool ended_ = false;  // whether an archive has just ended
  bool joined_ = false;
  std::uint64_t ignored_ = 0;
};

/// A sample as stored in a shard: the bytes of its members.
struct RawSample : ShardRow {
  std::string shard;
  std::string key;
  std::vector<std::pair<std::string, std::string>> members;  // name and bytes

  bool has(const std::string& name) const override { return find(name) != nullptr; }
  std::string read(const std::string& name) const override { return *find(name); }

 private:
  const std::string* find(const std::string& name) const;
};

/// Detects where a new sample starts: at a new key, or at a member name that the current sample already has.
class StreamGrouping {
 public:
  bool begins(const std::string& key, const std::string& name);

  /// The number of samples with a key that occurred before in this shard.
  std::int64_t repeated() const { return repeated_; }
  const std::string& repeated_example() const { return repeated_example_; }

 private:
  std::string key_;
  std::unordered_set<std::string> names_;  // names of the current sample's members
  // hashes of all keys so far; they take less memory than the keys, of which a shard may hold millions
  std::unordered_set<std::size_t> keys_;
  std::int64_t repeated_ = 0;
  std::string repeated_example_;
};

/// Reads the samples of a shard that is a stream: consecutive members with the same key form a sample.
class ShardStream {
 public:
  /// `wanted` returns whether to keep a member of the given name. The constructor and next() throw StreamError.
  ShardStream(const std::string& address, const StreamWaitPolicy& wait_policy, std::function<bool(const std::string&)> wanted);

  /// Returns the next sample; null at the end.
  std::shared_ptr<RawSample> next();

  const StreamGrouping& grouping() const { return grouping_; }
  const TarStream& tar() const { return tar_; }

 private:
  const std::string address_;
  const std::function<bool(const std::string&)> wanted_;
  TarStream tar_;
  StreamGrouping grouping_;
  std::shared_ptr<RawSample> open_;  // the current sample; more members may follow
};

/// Returns how many samples ShardStream would make from these members.
std::int64_t count_streamed(const std::vector<io::TarMember>& members);

/// Indexes a tar that is a stream, as index_tar does for other tars. Offsets count uncompressed bytes.
io::TarIndex index_stream(const std::string& address, const StreamWaitPolicy& wait_policy);

/// Returns true if the address is a command ("pipe:...") or has the name of a compressed tar.
bool is_stream(const std::string& address);

/// Returns a shard as a DataFile for the data set's fingerprint. The DataFile's name is the file name, or the whole command.
DataFile shard_file(const std::string& address);

/// Expands the shards that a user names, as expand_paths does, including commands with braces ("pipe:cat {0..9}.tar"). A folder stands for
/// its .tar files or, if it has none, for its .tar.gz or .tgz files.
std::vector<std::string> expand_shards(const PathList& paths);

}  // namespace tessera
