#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tessera {

/// A file of a sample in its shard.
struct ShardMember {
  std::string name;  // what follows the first dot, in lower case
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

struct ShardSample {
  std::uint32_t shard = 0;
  std::string key;
  std::vector<ShardMember> members;

  const ShardMember* find(const std::string& name) const;
};

/// All samples of some tar shards, and what was odd about them.
struct ShardIndex {
  std::vector<std::string> paths;
  std::vector<ShardSample> samples;
  std::map<std::string, std::int64_t> names;  // of members -> how many samples have one
  std::int64_t repeated = 0;                  // samples whose key had come before in the same shard
  std::int64_t scattered = 0;                 // samples whose members do not lie next to each other
  std::string repeated_example;
  std::string scattered_example;
  std::vector<std::string> problems;  // one line for each damaged shard
};

/// Splits a member's path at the first dot of its file name: "a/b.seg.png" -> "a/b" and "seg.png". False for file names
/// without a dot or that start with one, and for WebDataset's own meta files ("__x__").
bool split_member_path(const std::string& path, std::string& key, std::string& name);

/// Reads the headers of the shards, in threads, or what `cache` (see IndexCache) keeps of them.
ShardIndex index_shards(const std::vector<std::string>& paths, const std::string& cache = "off");

}  // namespace tessera
