#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

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
};

/// Splits a member's path at the first dot of its file name: "a/b.seg.png" -> "a/b" and "seg.png". Returns false for file names
/// that have no dot or start with one, and for WebDataset's own meta files ("__x__").
bool split_member_path(const std::string& path, std::string& key, std::string& name);

/// Indexes the shards in parallel. Reads the tar headers, or takes the indices stored in `cache` (see IndexCache).
ShardIndex index_shards(const std::vector<std::string>& paths, const std::string& cache = "off");

}  // namespace tessera
