#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "src/base/digest.h"
#include "src/base/dump_utf8.h"
#include "src/data/loading/sample_pass.h"
#include "src/data/loading/skip_log.h"
#include "src/data/packing/pack.h"
#include "src/data/packing/pack_sample.h"
#include "src/io/tar.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/fields.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Manifest = nlohmann::ordered_json;

constexpr std::int64_t kListed = 1000;  // maximum number of bad samples listed in the manifest
constexpr std::int64_t kJudged = 100;   // number of samples after which the share of bad ones is first checked
constexpr std::int64_t kTarEnd = 2 * 512;

// Returns "KEY: BEFORE, now AFTER" for each line in which two dumps of settings differ. Returns "" if the dumps have different keys.
std::string describe_changes(const std::string& before, const std::string& after) {
  const std::vector<std::string> old_lines = split(before, '\n'), new_lines = split(after, '\n');
  if (old_lines.size() != new_lines.size()) return "";
  std::string out;
  for (std::size_t i = 0; i < old_lines.size(); ++i) {
    if (old_lines[i] == new_lines[i]) continue;
    const std::size_t value = old_lines[i].find(": ");
    if (value == std::string::npos || new_lines[i].compare(0, value + 2, old_lines[i], 0, value + 2) != 0) return "";
    out += (out.empty() ? "" : " and ") + old_lines[i] + ", now " + new_lines[i].substr(value + 2);
  }
  return out;
}

// Writes the shards and records the progress in the manifest, so that a later call can continue.
class Packer {
 public:
  Packer(const Source& source, const std::string& source_settings, const PackSettings& settings)
      : source_(source), settings_(settings), classes_(source.class_names()) {
    manifest_ = {{"format", "tessera pack 1"},
                 {"source", source.describe()},
                 {"source_settings", source_settings},
                 {"settings", config::to_yaml(config::dump(settings))},
                 {"background_class", source.background_class()}, {"classes", classes_.size()},
                 {"complete", false}, {"samples", 0}, {"bytes", 0}, {"fingerprint", fingerprint_.text()},
                 {"bad", Manifest::object()}, {"bad_samples", Manifest::array()}, {"shards", Manifest::array()}};
  }

  // Continues from an existing manifest, or starts a new one.
  void begin() {
    std::error_code error;
    fs::create_directories(settings_.folder, error);
    if (error) user_error(settings_.folder, ": cannot make this folder: ", error.message());
    const bool goes_on = fs::exists(manifest_path(), error);
    for (const auto& entry : fs::directory_iterator(settings_.folder, error)) {
      const std::string file = entry.path().filename().string();
      if (file.starts_with(settings_.name + ".json.tmp.")) fs::remove(entry.path());
      const std::string kind = after_shard_number(file);
      if (kind.starts_with(".tar.tmp.")) fs::remove(entry.path());
      if (kind == ".tar" && !goes_on)
        user_error(entry.path().string(), ": exists already, but is not listed in a manifest ", manifest_path(),
                   ": name another folder, or remove the shards of ", settings_.name);
    }
    if (error) user_error(settings_.folder, ": cannot read this folder: ", error.message());
    check_classes();
    if (goes_on) restore();
  }

  void run(const std::function<void(std::int64_t, std::int64_t)>& progress) {
    const std::int64_t first = next_, count = source_.size() - first;
    was_complete_ = manifest_["complete"].get<bool>();
    if (was_complete_) return;
    SamplePass<PackedSample> pass({.source = borrowed(source_),
                                   .count = count,
                                   .threads = settings_.threads,
                                   .ahead = 4 * settings_.threads,
                                   .place = [first](std::int64_t number) { return first + number; }},
                                  [this](Sample& sample, std::int64_t, PackedSample& out) {
                                    pack_sample(sample, settings_, classes_, source_.depth_units(), out);
                                  });
    for (; next_ < source_.size(); ++next_) {
      add(pass.next());
      if (progress) progress(next_ + 1, first);
    }
    finish();
  }

  PackResult result() const {
    PackResult out;
    for (const Manifest& shard : manifest_["shards"])
      out.shards.push_back((fs::path(settings_.folder) / shard["file"].get<std::string>()).string());
    out.samples = manifest_["samples"];
    out.bytes = manifest_["bytes"];
    out.bad = bad_;
    out.manifest = manifest_path();
    out.fingerprint = fingerprint_.text();
    out.was_complete = was_complete_;
    return out;
  }

 private:
  std::string manifest_path() const { return (fs::path(settings_.folder) / (settings_.name + ".json")).string(); }

  std::string file_of(std::size_t shard) const {
    std::array<char, 32> number{};
    std::snprintf(number.data(), number.size(), "-%05zu.tar", shard);
    return settings_.name + number.data();
  }

  // Returns what follows "NAME-" and digits in the name of a file, or "" for other names, such as those of a set "NAME-small".
  std::string after_shard_number(const std::string& file) const {
    const std::string start = settings_.name + "-";
    const std::size_t end = file.find_first_not_of("0123456789", start.size());
    return file.starts_with(start) && end != std::string::npos ? file.substr(end) : "";
  }

  std::string classes_path() const { return (fs::path(settings_.folder) / "classes.txt").string(); }

  std::string classes_text() const {
    std::string text;
    for (const std::string& name : classes_) text += name + "\n";
    return text;
  }

  // All shards in a folder share classes.txt, so other classes would change the meaning of the labels in earlier shards.
  void check_classes() const {
    if (!classes_.empty() && fs::exists(classes_path()) && io::read_file(classes_path()) != classes_text())
      user_error(classes_path(), ": lists other classes, which shards in this folder may use: name another folder, or remove this file");
  }

  void restore() {
    const Manifest there = Manifest::parse(io::read_file(manifest_path()), nullptr, false);
    if (!there.is_object() || there.value("format", "") != manifest_["format"])
      user_error(manifest_path(), ": is not the manifest of a pack: name another folder");
    for (const char* key : {"source", "source_settings", "settings", "background_class", "classes"})
      if (there.value(key, Manifest()) != manifest_[key])
        user_error(manifest_path(), ": was started with ", change_of(there, key),
                   ": name another folder, or remove the shards of ", settings_.name);
    try {
      for (const Manifest& shard : there.at("shards")) check(shard);
      next_ = there["shards"].empty() ? 0 : there["shards"].back().at("end").get<std::int64_t>();
      bad_ = there.at("bad").get<std::map<std::string, std::int64_t>>();
      fingerprint_ = SetFingerprint::parse(there.at("fingerprint"));
      for (const auto& [reason, count] : bad_) bad_total_ += count;
    } catch (const Manifest::exception& error) {
      user_error(manifest_path(), ": is damaged: ", error.what());
    }
    manifest_ = there;
  }

  std::string change_of(const Manifest& there, const std::string& key) const {
    const Manifest before = there.value(key, Manifest());
    const bool reported = key == "settings" && before.is_string();
    const std::string changes = reported ? describe_changes(before.get<std::string>(), manifest_[key]) : "";
    return changes.empty() ? "another " + key : changes;
  }

  void check(const Manifest& shard) const {
    const fs::path path = fs::path(settings_.folder) / shard.at("file").get<std::string>();
    std::error_code error;
    const auto size = fs::file_size(path, error);
    if (error || size != shard.at("bytes").get<std::uintmax_t>())
      user_error(path.string(), ": ", error ? "is missing" : "has another size",
                 ", but " + manifest_path() + " lists it as complete: remove all of ", settings_.name,
                 " and start again");
  }

  void add(PackedSample sample) {
    if (!sample.good()) return note_bad(sample);
    const bool too_large = settings_.bytes_per_shard > 0 && bytes_ + sample.bytes() + kTarEnd > settings_.bytes_per_shard;
    if (in_shard_ == settings_.samples_per_shard || (too_large && in_shard_ > 0)) finish_shard();
    if (!tar_) tar_.emplace((fs::path(settings_.folder) / file_of(manifest_["shards"].size())).string());
    if (!keys_.insert(sample.key).second) {
      sample.key += concat("-", next_);
      keys_.insert(sample.key);
    }
    for (const SampleFile& file : sample.files) tar_->add(sample.key + "." + file.name, file.content);
    fingerprint_.add(sample.key, sample.digest);
    bytes_ += sample.bytes();
    ++in_shard_;
  }

  void note_bad(const PackedSample& sample) {
    ++bad_[sample.bad_reason];
    if (bad_total_++ < kListed)
      manifest_["bad_samples"].push_back({{"index", next_},
                                          {"key", repair_utf8(sample.key)},
                                          {"reason", sample.bad_reason},
                                          {"text", repair_utf8(sample.bad_text)}});
    const std::int64_t seen = next_ + 1;
    if ((seen >= kJudged || settings_.max_bad_share == 0) && too_many_bad(seen))
      refuse_bad("first ", seen, "; this one: " + sample.bad_text);
  }

  bool too_many_bad(std::int64_t seen) const {
    return static_cast<double>(bad_total_) > settings_.max_bad_share * static_cast<double>(seen);
  }

  [[noreturn]] void refuse_bad(const char* which, std::int64_t seen, const std::string& example) const {
    user_error(source_.describe(), ": ", bad_total_, " of the ", which, seen, " samples cannot be used (",
               describe_counts(bad_), "), ",
               describe_bad_share(settings_.max_bad_share, bad_total_, seen, "--max-bad-share "), example);
  }

  // Completes the shard first, then writes the manifest that lists it. Bad samples after the shard's last sample count for the next
  // shard.
  void finish_shard() {
    tar_->finish();
    tar_.reset();
    const std::int64_t first = manifest_["shards"].empty() ? 0 : manifest_["shards"].back()["end"].get<std::int64_t>();
    manifest_["shards"].push_back({{"file", file_of(manifest_["shards"].size())},
                                   {"first", first},
                                   {"end", next_},
                                   {"samples", in_shard_},
                                   {"bytes", bytes_ + kTarEnd}});
    manifest_["samples"] = manifest_["samples"].get<std::int64_t>() + in_shard_;
    manifest_["bytes"] = manifest_["bytes"].get<std::int64_t>() + bytes_ + kTarEnd;
    manifest_["fingerprint"] = fingerprint_.text();
    manifest_["bad"] = bad_;
    in_shard_ = bytes_ = 0;
    keys_.clear();
    write_manifest();
  }

  void finish() {
    if (!tar_ && manifest_["shards"].empty())
      user_error(source_.describe(), ": no sample can be packed (", describe_counts(bad_), ")");
    if (too_many_bad(next_)) {
      const Manifest& listed = manifest_["bad_samples"];
      refuse_bad("", next_, listed.empty() ? "" : "; the first one: " + listed[0].value("text", ""));
    }
    if (tar_) finish_shard();
    check_classes();  // again, because another pack may have written the file since
    if (!classes_.empty()) io::write_file(classes_path(), classes_text());
    manifest_["bad"] = bad_;
    manifest_["complete"] = true;
    write_manifest();
  }

  void write_manifest() const {
    io::write_file(manifest_path(), dump_utf8(manifest_, 1) + "\n");
  }

  const Source& source_;
  const PackSettings settings_;
  const std::vector<std::string> classes_;
  Manifest manifest_;
  std::int64_t next_ = 0;  // index of the next sample in the source
  bool was_complete_ = false;
  std::map<std::string, std::int64_t> bad_;
  std::int64_t bad_total_ = 0;
  SetFingerprint fingerprint_;

  // State of the shard that is being written.
  std::optional<io::TarWriter> tar_;
  std::set<std::string> keys_;
  std::int64_t in_shard_ = 0, bytes_ = 0;
};

// Concatenates numbers and texts, each text preceded by its length, so that different samples always produce different bytes.
class Serial {
 public:
  Serial& number(std::int64_t value) {
    std::array<char, sizeof value> bytes{};
    std::memcpy(bytes.data(), &value, sizeof value);
    out_.append(bytes.data(), bytes.size());
    return *this;
  }
  Serial& text(std::string_view value) {
    number(static_cast<std::int64_t>(value.size()));
    out_.append(value);
    return *this;
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

template <class T>
std::string_view raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), sizeof(T) * values.size()};
}

}  // namespace

PackResult pack(const Source& source, const std::string& source_settings, const PackSettings& settings,
                const std::function<void(std::int64_t, std::int64_t)>& progress) {
  Packer packer(source, source_settings, settings);
  packer.begin();
  packer.run(progress);
  return packer.result();
}

SampleDigest compute_digest(const Sample& sample) {
  Serial out;
  out.text(sample.encoded);
  if (sample.encoded.empty()) out.number(sample.image.height).number(sample.image.width).text(raw(sample.image.pixels));
  out.number(std::ssize(sample.captions));
  for (const std::string& caption : sample.captions) out.text(caption);
  out.text(sample.summary).text(sample.object_tags).number(sample.label).text(raw(sample.mask));
  if (!sample.class_name.empty()) out.text(sample.class_name);
  if (!sample.depth.empty()) out.text(raw(sample.depth));
  out.number(std::ssize(sample.objects));
  for (const ObjectAnnotation& object : sample.objects) {
    out.number(object.label).text(object.phrase).number(object.span[0]).number(object.span[1]).number(object.caption);
    for (const std::int64_t side : object.box) out.number(side);
    if (!object.negatives.empty()) out.number(std::ssize(object.negatives));
    for (const std::string& negative : object.negatives) out.text(negative);
  }
  out.number(sample.region_width).text(raw(sample.regions));
  out.number(std::ssize(sample.negatives));
  for (const HardNegative& negative : sample.negatives) out.text(negative.kind).text(negative.caption);
  const std::string bytes = out.take();
  return {fingerprint(bytes, 1), fingerprint(bytes, 2)};
}

void SetFingerprint::add(const std::string& key, const SampleDigest& digest) {
  const std::string bytes = Serial()
                                .text(key)
                                .number(static_cast<std::int64_t>(digest.low))
                                .number(static_cast<std::int64_t>(digest.high))
                                .take();
  low_ += fingerprint(bytes, 1);
  high_ += fingerprint(bytes, 2);
}

std::string SetFingerprint::text() const {
  return hexadecimal(high_) + hexadecimal(low_);
}

SetFingerprint SetFingerprint::parse(const std::string& text) {
  SetFingerprint out;
  if (text.size() != 32) return out;
  out.high_ = std::strtoull(text.substr(0, 16).c_str(), nullptr, 16);
  out.low_ = std::strtoull(text.substr(16).c_str(), nullptr, 16);
  return out;
}

}  // namespace tessera
