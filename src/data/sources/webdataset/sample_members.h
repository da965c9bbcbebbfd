#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <tessera/data/sample.h>
#include <tessera/data/sources/webdataset/webdataset.h>

namespace tessera {

/// The files of one sample of a shard, wherever they are; each goes by what follows the key in its name.
class SampleMembers {
 public:
  virtual ~SampleMembers() = default;
  virtual bool has(const std::string& name) const = 0;
  /// Its bytes; only of a member that is there. Throws SampleError when they cannot be had.
  virtual std::string read(const std::string& name) const = 0;
};

/// Makes samples out of their members, as the settings map them.
class MemberMapper {
 public:
  /// `first_shard`: classes.txt is looked for beside it; empty: nowhere.
  MemberMapper(const WebDatasetSettings& settings, const std::string& first_shard);

  /// The sample of this key in a shard; it may lack any field, the picture too. Throws SampleError naming both: members
  /// that are damaged. Nothing is decoded but masks and region features.
  Sample load(const std::string& shard, const std::string& key, const SampleMembers& members) const;
  /// The captions that load() would give, of the texts alone. Throws as it does, but for what it says of pictures.
  std::vector<std::string> captions(const std::string& shard, const std::string& key,
                                    const SampleMembers& members) const;
  /// How many those are: known by the members' names, unless lines or the json member must be read for it.
  std::int64_t count_captions(const std::string& key, const SampleMembers& members) const;
  const std::vector<std::string>& classes() const { return classes_; }
  /// "caption is looked for in txt and text (caption_keys)": of these fields (needed_fields()).
  std::string describe_keys(const std::vector<std::string>& fields) const;

 private:
  Sample read(const std::string& key, const SampleMembers& members) const;
  std::vector<std::string> read_captions(const std::string& key, const SampleMembers& members) const;
  void read_texts(const SampleMembers& members, const nlohmann::json* json, Sample& sample) const;
  void read_captions(const SampleMembers& members, const nlohmann::json* json, Sample& sample) const;
  void add_captions(const std::string& text, Sample& sample) const;

  WebDatasetSettings settings_;
  std::vector<std::string> classes_;
  mutable std::atomic<bool> told_bad_json_ = false;
};

}  // namespace tessera
