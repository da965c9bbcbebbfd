#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/data/sources/webdataset/webdataset.h"
#include "src/io/tar.h"

namespace tessera {

/// A file of a sample in a shard.
struct ShardMember {
  std::string name;  // the part after the first dot, in lower case
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

struct ShardSample {
  std::uint32_t shard = 0;
  std::string key;
  std::vector<ShardMember> members;

  const ShardMember* find(const std::string& name) const;
};

/// Shards that are not damaged, but not as expected. Collects how many there are of each kind, and the first one.
class RemarkedShards {
 public:
  /// `samples` is the number of samples in the shard.
  void note(const std::string& shard, const io::TarIndex& tar, std::int64_t samples);
  /// Returns one line for each kind. `shards` is the number of all shards.
  std::vector<std::string> lines(std::size_t shards) const;

 private:
  struct Kind {
    std::size_t shards = 0;
    std::string first;
  };
  Kind empty_, without_samples_, joined_, ignored_;
};

/// All samples of some tar shards, and the irregularities found in these shards.
struct ShardIndex {
  std::vector<std::string> paths;
  std::vector<ShardSample> samples;
  std::map<std::string, std::int64_t> names;  // member name -> number of samples that have it
  std::int64_t repeated = 0;                  // samples with a key that occurred before in the same shard
  std::int64_t scattered = 0;                 // samples with members that are not adjacent
  std::string repeated_example;
  std::string scattered_example;
  std::vector<std::string> problems;  // one line for each damaged shard
  RemarkedShards remarks;
};

/// Splits a member's path at the first dot of its file name: "a/b.seg.png" -> "a/b" and "seg.png". Returns false for file names
/// that have no dot or start with one, and for WebDataset's own meta files ("__x__").
bool split_member_path(const std::string& path, std::string& key, std::string& name);

/// Returns the name with the letters A to Z in lower case, as members are named.
std::string as_member_name(std::string name);

/// Indexes the shards in parallel. Reads the tar headers, or takes the indices stored in `cache` (see IndexCache).
ShardIndex index_shards(const std::vector<std::string>& paths, const std::string& cache = "off");

/// The files of one sample of a shard, from an index or a stream, as a row.
class ShardRow : public Row {
 public:
  virtual bool has(const std::string& name) const = 0;
  /// Returns the bytes of a member, which must exist. Throws SampleError if they cannot be read.
  virtual std::string read(const std::string& name) const = 0;

  nlohmann::json value(const std::string& name) const override;
  std::optional<std::string> text(const std::string& name) const override;
  std::optional<std::string> file(const std::string& name, const char* missing) const override;
  const nlohmann::json* side() const override;
  std::string bad_side() const override;

  bool splits_lines = false;  // whether value() makes each line of a member a text of its own

 private:
  const nlohmann::json& json() const;  // the json member, parsed at the first use; null if there is none
  mutable std::optional<nlohmann::json> json_;
};

/// Makes samples from the rows of shards.
class ShardMapper {
 public:
  /// Searches for classes.txt next to `first_shard`, unless `first_shard` is empty.
  ShardMapper(const WebDatasetSettings& settings, const std::string& first_shard);

  /// Makes the sample of this key in a shard; any field may be missing, even the image. Only masks, depths and region features
  /// are decoded. Throws SampleError naming shard and key if members are damaged.
  Sample load(const std::string& shard, const std::string& key, ShardRow& row) const;
  /// Returns the captions that load() would return, reading only texts. Throws as load() does, except for errors about images.
  std::vector<std::string> captions(const std::string& shard, const std::string& key, ShardRow& row) const;
  /// Returns the number of captions that captions() would return. Reads members only if their names do not determine this number.
  std::int64_t count_captions(const std::string& shard, const std::string& key, ShardRow& row) const;
  const std::vector<std::string>& classes() const { return rows_.classes(); }
  std::string describe(const std::vector<std::string>& needed) const { return describe_rows(rows_.settings(), classes().size(), needed); }

 private:
  RowMapper rows_;
  bool caption_lines_;
};

}  // namespace tessera
