#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "src/data/formats/line_breaks.h"
#include "src/data/sources/webdataset/webdataset.h"
#include <tessera/data/sample.h>

namespace tessera {

/// The files of one sample of a shard, from an index or a stream. A member's name is the part of its file name after the key.
class SampleMembers {
 public:
  virtual ~SampleMembers() = default;
  virtual bool has(const std::string& name) const = 0;
  /// Returns the bytes of a member, which must exist. Throws SampleError if they cannot be read.
  virtual std::string read(const std::string& name) const = 0;
};

/// Makes samples from their members according to the settings.
class MemberMapper {
 public:
  /// Searches for classes.txt next to `first_shard`, unless `first_shard` is empty.
  MemberMapper(const WebDatasetSettings& settings, const std::string& first_shard);

  /// Makes the sample of this key in a shard; any field may be missing, even the image. Only masks, depths and region features
  /// are decoded. Throws SampleError naming shard and key if members are damaged.
  Sample load(const std::string& shard, const std::string& key, const SampleMembers& members) const;
  /// Returns the captions that load() would return, reading only texts. Throws as load() does, except for errors about images.
  std::vector<std::string> captions(const std::string& shard, const std::string& key,
                                    const SampleMembers& members) const;
  /// Returns the number of captions that captions() would return. Reads members only if their names do not determine this number.
  std::int64_t count_captions(const std::string& key, const SampleMembers& members) const;
  const std::vector<std::string>& classes() const { return classes_; }
  /// Describes where the given fields (see needed_fields()) come from: "caption is looked for in txt and text (caption_keys)".
  std::string describe_keys(const std::vector<std::string>& fields) const;

 private:
  Sample read(const std::string& key, const SampleMembers& members) const;
  std::vector<std::string> read_captions(const std::string& key, const SampleMembers& members) const;
  void read_texts(const SampleMembers& members, const nlohmann::json* json, Sample& sample) const;
  void read_captions(const SampleMembers& members, const nlohmann::json* json, Sample& sample) const;
  /// Adds the captions of a text member.
  void add_captions(const std::string& name, std::string bytes, Sample& sample) const;
  /// Warns once if most captions have line breaks.
  void tell_line_breaks(const Sample& sample) const;

  WebDatasetSettings settings_;
  std::vector<std::string> classes_;
  mutable std::atomic<bool> told_bad_json_ = false, told_line_breaks_ = false;
  mutable LineBreaks breaks_;
};

}  // namespace tessera
