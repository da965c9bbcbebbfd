#include "src/data/sources/webdataset/shards.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "src/base/printable.h"
#include "src/data/formats/json_values.h"
#include "src/data/formats/data_files.h"
#include "src/data/formats/regions.h"
#include "src/base/in_threads.h"
#include "src/io/stand_in.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kJsonField = "json.";  // "json.summary" means the field summary of the json member
const std::string kNpy = "npy";  // the member that npy_fields names the numbers of
constexpr std::size_t kIndexThreads = 8;
constexpr std::chrono::seconds kTellEvery{10};

// Groups the members of one shard into samples. A member is added to the last sample with its key. If that sample already has a member of
// this name, the key counts as repeated, and the member starts a new sample, so that nothing is lost.
class ShardReader {
 public:
  ShardReader(ShardIndex& index, std::uint32_t shard) : index_(index), shard_(shard), begin_(index.samples.size()) {}

  void add(const io::TarMember& member) {
    std::string key, name;
    if (!split_member_path(member.name, key, name)) return;
    const auto found = latest_.find(key);
    if (found == latest_.end()) {
      begin_sample(key);
    } else if (!is_new_name(found->second, name)) {
      index_.remarks.add(" keys occur more than once; each occurrence is a sample of its own", index_.paths[shard_] + ": " + key);
      begin_sample(key);
    } else if (found->second != current_ && scattered_.insert(found->second).second) {
      index_.remarks.add(" samples have members that are not adjacent", index_.paths[shard_] + ": " + key);
    }
    current_ = latest_.at(key);
    index_.samples[current_].members.push_back({name, member.offset, member.size});
  }

  // Drops the last sample of a truncated archive if some of its members may be missing.
  void drop_incomplete(const std::string& cut_member) {
    const std::size_t count = index_.samples.size() - begin_;
    if (count == 0) return;
    std::string key, name;
    const bool of_last = split_member_path(cut_member, key, name) && key == index_.samples.back().key;
    const bool smaller =
        count > 1 && index_.samples.back().members.size() < index_.samples[index_.samples.size() - 2].members.size();
    if (of_last || smaller) index_.samples.pop_back();
  }

  std::size_t count() const { return index_.samples.size() - begin_; }

 private:
  // Looks the name up in a set if the sample has many members, because comparing each new name with all earlier names would take quadratic
  // time. For example, files such as IMG.00001.jpg all have the key IMG, so they form one sample.
  bool is_new_name(std::size_t sample, const std::string& name) {
    constexpr std::size_t few = 32;
    const std::vector<ShardMember>& members = index_.samples[sample].members;
    if (members.size() < few) return index_.samples[sample].find(name) == nullptr;
    std::unordered_set<std::string>& names = many_names_[sample];
    if (names.empty())
      for (const ShardMember& each : members) names.insert(each.name);
    return names.insert(name).second;
  }

  void begin_sample(const std::string& key) {
    latest_[key] = index_.samples.size();
    index_.samples.push_back({shard_, key, {}});
  }

  ShardIndex& index_;
  std::uint32_t shard_;
  std::size_t begin_;
  std::size_t current_ = 0;
  std::unordered_map<std::string, std::size_t> latest_;
  std::unordered_set<std::size_t> scattered_;
  std::unordered_map<std::size_t, std::unordered_set<std::string>> many_names_;  // sample with many members -> its members' names
};

// Reads the headers of several shards in parallel, because most of the time is spent waiting for the disk or the network. A path
// that is given twice is read once.
std::map<std::string, io::TarIndex> index_tars(const std::vector<std::string>& paths, const std::string& setting) {
  const IndexCache cache(setting);
  std::map<std::string, io::TarIndex> indices;
  std::vector<std::pair<const std::string, io::TarIndex>*> order;  // each path once, in the order given
  for (const std::string& path : paths)
    if (const auto [place, is_new] = indices.try_emplace(path); is_new) order.push_back(&*place);
  std::mutex mutex;  // guards the two variables below
  std::size_t done = 0;
  auto reported = std::chrono::steady_clock::now();
  for_each_in_threads(order.size(), kIndexThreads, [&](std::size_t i) {
    order[i]->second = cache.index(order[i]->first);
    const std::lock_guard lock(mutex);
    ++done;
    if (std::chrono::steady_clock::now() - reported < kTellEvery) return;
    reported = std::chrono::steady_clock::now();
    log::info("reading the headers of the shards: ", done, " of ", indices.size());
  });
  return indices;
}

}  // namespace

const ShardMember* ShardSample::find(const std::string& name) const {
  const auto found = std::ranges::find(members, name, &ShardMember::name);
  return found == members.end() ? nullptr : &*found;
}

bool split_member_path(const std::string& path, std::string& key, std::string& name) {
  const std::size_t slash = path.rfind('/');
  const std::size_t base = slash == std::string::npos ? 0 : slash + 1;
  const std::size_t dot = path.find('.', base);
  if (dot == std::string::npos || dot == base || dot + 1 == path.size()) return false;
  if (path.size() > 4 && path.starts_with("__") && path.ends_with("__")) return false;
  key = path.substr(0, dot);
  name = as_member_name(path.substr(dot + 1));
  return true;
}

std::string as_member_name(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return name;
}

void ShardRemarks::note(const std::string& shard, const io::TarIndex& tar, std::int64_t samples) {
  if (tar.members.empty() && tar.problem.empty()) add(" shards are empty", shard);
  if (!tar.members.empty() && samples == 0)
    add(" shards hold files, but none named KEY.ENDING, so that they have no samples", concat(shard, ", with ", printable(tar.members.front().name)));
  if (tar.joined)
    add(" shards are several archives, one after the other: all are read, although the webdataset package reads only the first", shard);
  if (tar.ignored > 0)
    add(" shards have bytes after their end that are not another archive: these bytes are ignored", concat(shard, ", ", tar.ignored, " bytes"));
}

void ShardRemarks::add(const std::string& kind, const std::string& first) {
  if (auto& [count, example] = kinds_[kind]; count++ == 0) example = first;
}

std::vector<std::string> ShardRemarks::lines(std::size_t shards) const {
  std::vector<std::string> out;
  for (const auto& [kind, found] : kinds_)
    out.push_back(concat(found.first, kind.starts_with(" shards") ? concat(" of ", shards) : "", kind, " (first: ", found.second, ")"));
  return out;
}

ShardIndex index_shards(const std::vector<std::string>& paths, const std::string& cache) {
  ShardIndex index;
  index.paths = paths;
  const std::map<std::string, io::TarIndex> indices = index_tars(paths, cache);
  for (std::size_t shard = 0; shard < paths.size(); ++shard) {
    const io::TarIndex& tar = indices.at(paths[shard]);
    ShardReader reader(index, static_cast<std::uint32_t>(shard));
    for (const io::TarMember& member : tar.members) reader.add(member);
    index.remarks.note(paths[shard], tar, static_cast<std::int64_t>(reader.count()));
    if (tar.problem.empty()) continue;
    reader.drop_incomplete(tar.cut_member);
    index.problems.push_back(concat(paths[shard], ": ", tar.problem, " (byte ", tar.problem_offset, "); its ",
                                    reader.count(), " complete samples are used"));
  }
  for (const ShardSample& sample : index.samples)
    for (const ShardMember& member : sample.members) ++index.names[member.name];
  return index;
}

void add_npy_fields(const std::vector<std::string>& names, std::string_view npy, Json& fields) {
  if (!fields.is_null() && !fields.is_object()) return;
  const std::vector<double> numbers = read_npy_numbers(npy, "its member npy");
  if (numbers.size() != names.size())
    throw SampleError("bad_fields", concat("its member npy has ", numbers.size(), " numbers, but npy_fields names ", names.size()));
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto whole = static_cast<std::int64_t>(numbers[i]);
    fields[names[i]] = static_cast<double>(whole) == numbers[i] ? Json(whole) : Json(numbers[i]);
  }
}

const Json& ShardRow::json() const {
  if (!json_) {
    json_ = has("json") ? parse_python_json(read("json")) : Json();
    if (npy_fields != nullptr && !npy_fields->empty() && has(kNpy)) add_npy_fields(*npy_fields, read(kNpy), *json_);
  }
  return *json_;
}

Json ShardRow::value(const std::string& name) const {
  if (has(name)) {
    const std::string text = checked_text(read(name), "its member " + name);
    return splits_lines ? Json(split(text, '\n')) : Json(text);
  }
  const Json* const object = side();
  return name.starts_with(kJsonField) && object != nullptr ? object->value(name.substr(kJsonField.size()), Json()) : Json();
}

std::optional<std::string> ShardRow::text(const std::string& name) const {
  if (has(name)) return std::string(strip(read(name)));
  std::string text = name.starts_with(kJsonField) ? json_text(value(name)) : std::string();
  return text.empty() ? std::nullopt : std::optional(std::move(text));
}

std::optional<std::string> ShardRow::file(const std::string& name, const char* /*missing*/) const {
  return has(name) ? std::optional(read(name)) : std::nullopt;
}

const Json* ShardRow::side() const {
  return json().is_object() ? &json() : nullptr;
}

std::string ShardRow::bad_side() const {
  if (!json().is_discarded()) return {};
  const std::string known = io::describe_stand_in(read("json"));
  return concat("its json member is not JSON", known.empty() ? "" : ": ", known);
}

ShardMapper::ShardMapper(const WebDatasetSettings& given, const std::string& first_shard)
    : rows_(
          [&] {
            RowSettings settings = given;
            for (const std::string& name : given.json_captions) settings.caption_keys.push_back(concat(kJsonField, name));
            const std::string beside = (std::filesystem::path(first_shard).parent_path() / "classes.txt").string();
            std::error_code ignored;
            if (!settings.classes && !first_shard.empty() && std::filesystem::exists(beside, ignored)) settings.classes = beside;
            return settings;
          }(),
          {.name = "webdataset " + first_shard,
           .side_prefix = std::string(kJsonField),
           .break_hint = ": for text members, caption_lines: true makes each line a caption"}),
      caption_lines_(given.caption_lines),
      npy_fields_(given.npy_fields) {}

template <class Read>
Sample ShardMapper::read(ShardRow& row, const Read& read) const {
  Sample sample;
  sample.key = row.key;
  row.splits_lines = caption_lines_;
  row.npy_fields = &npy_fields_;
  read_at(concat(row.shard, ": sample ", row.key), row.key, [&] { read(row, sample); });
  return sample;
}

Sample ShardMapper::load(ShardRow&& row) const {
  Sample sample = read(row, [&](const Row& each, Sample& out) { rows_.read(each, out); });
  if (sample.encoded.empty())
    sample.no_image = concat(row.shard, ": sample ", row.key, ": has no image; expected one of the members ", join_names(rows_.settings().image_keys));
  return sample;
}

std::vector<std::string> ShardMapper::captions(ShardRow&& row) const {
  return read(row, [&](const Row& each, Sample& out) { rows_.read_texts(each, out); }).captions;
}

std::int64_t ShardMapper::count_captions(ShardRow&& row) const {
  const RowSettings& settings = rows_.settings();
  const auto in_json = std::ranges::count_if(settings.caption_keys, [](const std::string& name) { return name.starts_with(kJsonField); });
  const auto texts = std::ranges::count_if(settings.caption_keys, [&](const std::string& name) { return row.has(name); });
  // If several members may hold captions, they must be read, because blank captions do not count. A single member need not be read: if it
  // is blank, the sample is bad anyway.
  const bool reads_json = row.has("json") && (in_json > 0 || (!settings.text_fields.empty() && texts == 0));
  return reads_json || caption_lines_ || texts > 1 ? std::ssize(captions(std::move(row))) : texts;
}

}  // namespace tessera
