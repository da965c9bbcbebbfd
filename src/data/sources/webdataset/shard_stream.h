#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "src/data/sources/webdataset/sample_members.h"
#include "src/data/sources/webdataset/tar_stream.h"
#include <tessera/data/source.h>

namespace tessera {

/// A sample as its shard holds it: the bytes of its members.
struct RawSample : public SampleMembers {
  std::string shard;
  std::string key;
  std::vector<std::pair<std::string, std::string>> members;  // name and bytes

  bool has(const std::string& name) const override { return find(name) != nullptr; }
  std::string read(const std::string& name) const override { return *find(name); }

 private:
  const std::string* find(const std::string& name) const;
};

/// Tells where a new sample begins: at a new key, or at a name that the sample has already.
class StreamGrouping {
 public:
  bool begins(const std::string& key, const std::string& name);

  /// How many samples have begun with a key that came before in this shard.
  std::int64_t repeated() const { return repeated_; }
  const std::string& repeated_example() const { return repeated_example_; }

 private:
  std::string key_;
  std::unordered_set<std::string> names_;  // of the members of this sample
  std::unordered_set<std::size_t> keys_;   // hashes of all that came: a shard may hold millions
  std::int64_t repeated_ = 0;
  std::string repeated_example_;
};

/// Samples of a shard that comes as a stream: the members that follow each other under one key.
class ShardStream {
 public:
  /// `wanted`: names of members that are kept. Throws StreamError, as next() does.
  ShardStream(const std::string& address, const StreamWaitPolicy& wait_policy,
              std::function<bool(const std::string&)> wanted);

  /// Null at the end.
  std::shared_ptr<RawSample> next();

  const StreamGrouping& grouping() const { return grouping_; }

 private:
  const std::string address_;
  const std::function<bool(const std::string&)> wanted_;
  TarStream tar_;
  StreamGrouping grouping_;
  std::shared_ptr<RawSample> open_;  // may have more members to come
};

/// How many samples ShardStream gives of these members.
std::int64_t count_streamed(const std::vector<io::TarMember>& members);

/// What index_tar tells, of a tar that comes as a stream; offsets count its bytes uncompressed.
io::TarIndex index_stream(const std::string& address, const StreamWaitPolicy& wait_policy);

/// True for commands ("pipe:...") and compressed tars (by their names).
bool is_stream(const std::string& address);

/// What a data set's fingerprint calls a shard: its file name, or the whole command.
DataFile shard_file(const std::string& address);

/// Shards as the user names them: as expand_paths, and commands with braces ("pipe:cat {0..9}.tar"). A folder without
/// .tar files stands for its .tar.gz or .tgz files.
std::vector<std::string> expand_shards(const PathList& paths);

}  // namespace tessera
