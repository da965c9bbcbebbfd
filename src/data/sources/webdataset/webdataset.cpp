#include "src/data/sources/webdataset/webdataset.h"

#include <algorithm>
#include <filesystem>
#include <unordered_map>

#include "src/base/printable.h"
#include "src/data/formats/column_file.h"
#include "src/base/in_threads.h"
#include "src/data/formats/json_values.h"
#include "src/data/formats/row_filter.h"
#include "src/data/sources/webdataset/shards.h"
#include "src/io/tar.h"
#include "src/remote/store.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

constexpr std::size_t kNamed = 20;  // maximum number of names in a message
constexpr std::size_t kFilterThreads = 8;

class IndexedRow : public ShardRow {
 public:
  IndexedRow(const ShardSample& entry, const std::string& path, bool whole)
      : ShardRow(path, entry.key), entry_(entry), file_(path, whole) {}

  bool has(const std::string& name) const override { return entry_.find(name) != nullptr; }
  std::string read(const std::string& name) const override {
    const ShardMember& member = *entry_.find(name);
    std::string bytes = file_.read(member.offset, member.size);
    if (bytes.size() < member.size) throw SampleError("truncated", "the shard has become shorter since it was indexed");
    return bytes;
  }

 private:
  const ShardSample& entry_;
  const ShardFile file_;
};

/// A filter's verdicts on samples, by key.
using SideTable = std::unordered_map<std::string, FilterVerdict>;

/// Applies the filter to the samples of a shard, using the Parquet file next to the shard (00000.parquet for 00000.tar, from img2dataset).
/// The file's column `key` holds the keys of the samples. If the file is missing, if it lacks one of the filter's fields, or if Arrow is
/// not available, returns an empty table; the caller must then use the samples' own fields. Throws UserError if the file is damaged.
SideTable judge_side_table(const std::string& shard, const RowFilter& filter) {
  const std::string path = std::filesystem::path(shard).replace_extension(".parquet").string();
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored) || !can_read_columns()) return {};
  const auto file = open_columns(path);
  std::vector<std::string> names = {"key"};
  std::vector<std::vector<std::string>> below;
  for (const std::string& field : filter.fields()) {
    const auto column = find_column(file->columns, field);
    if (!column) return {};
    names.push_back(column->column);
    below.push_back(column->below);
  }
  if (!find_column(file->columns, names[0])) return {};
  SideTable out;
  try {
    for (std::int64_t number = 0; number < std::ssize(file->group_rows); ++number) {
      const auto group = file->read(number, names);
      for (std::int64_t row = 0; row < group->rows(); ++row)
        if (const auto key = group->bytes(0, row))
          out[std::string(*key)] = filter.judge([&](std::size_t field) { return value_below(group->json(field + 1, row), below[field]); });
    }
  } catch (const std::runtime_error& error) {
    user_error(path, ": cannot be read for the filter: ", printable(error.what()));
  }
  return out;
}

class WebDataset : public IndexedSource, public FieldSource {
 public:
  WebDataset(const WebDatasetSettings& settings, const std::vector<std::string>& shards)
      : settings_(settings),
        index_(index_shards(shards, settings.index_cache)),
        mapper_(settings, remote::is_remote(index_.paths[0]) ? "" : index_.paths[0]) {
    report();
    if (std::ranges::any_of(index_.paths, remote::is_remote)) group_by_shard();
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(index_.samples.size()); }
  std::vector<std::string> class_names() const override { return mapper_.classes(); }
  std::int64_t background_class() const override { return settings_.background_class; }
  double depth_units() const override { return settings_.depth_units; }

  std::string describe() const override { return concat("webdataset ", where(), ", ", with_thousands(size()), " samples"); }

  std::string name_of(std::int64_t index) const override {
    const ShardSample& entry = index_.samples.at(static_cast<std::size_t>(index));
    return concat("sample ", entry.key, " of ", index_.paths[entry.shard]);
  }

  std::vector<std::string> captions(std::int64_t index) const override { return mapper_.captions(row_of(index)); }
  std::int64_t caption_count(std::int64_t index) const override { return mapper_.count_captions(row_of(index)); }

  std::string describe_fields(const std::vector<std::string>& needed) const override {
    const std::string where = mapper_.describe(needed);
    return concat("Its members are ", join_names(member_names()), json_fields(), where.empty() ? "" : "; ", where);
  }

  std::vector<std::int64_t> group_starts() const override { return groups_; }
  std::int64_t open_groups() const override { return settings_.open_shards; }
  std::int64_t read_ahead() const override { return read_ahead_; }
  void will_read(std::int64_t index) const override {
    const std::string& path = index_.paths[index_.samples.at(static_cast<std::size_t>(index)).shard];
    if (remote::is_remote(path)) remote::store()->fetch_ahead(path);
  }

  std::int64_t data_file_count() const override { return std::ssize(index_.paths); }
  DataFile data_file(std::int64_t index) const override { return shard_file(index_.paths.at(static_cast<std::size_t>(index))); }

  // Uses a shard's side table if it has the filter's fields, otherwise the samples' json members.
  std::vector<FilterVerdict> judge(const RowFilter& filter) const override {
    const std::vector<std::int64_t> begins = shard_starts();
    std::vector<FilterVerdict> out(index_.samples.size());
    for_each_in_threads(begins.size() - 1, kFilterThreads, [&](std::size_t piece) {
      const std::string& path = index_.paths[index_.samples[static_cast<std::size_t>(begins[piece])].shard];
      const SideTable side = judge_side_table(path, filter);
      const ShardFile file(path, true);
      for (auto i = static_cast<std::size_t>(begins[piece]); std::cmp_less(i, begins[piece + 1]); ++i) {
        const auto known = side.find(index_.samples[i].key);
        out[i] = known != side.end() ? known->second : filter.judge(make_json(index_.samples[i], file));
      }
    });
    return out;
  }

  Sample get(std::int64_t index) const override { return mapper_.load(row_of(index, false)); }

 private:
  // Captions are read of all samples or of none, so whole shards are fetched for them.
  IndexedRow row_of(std::int64_t index, bool whole = true) const {
    const ShardSample& entry = index_.samples.at(static_cast<std::size_t>(index));
    return {entry, index_.paths[entry.shard], whole};
  }

  // Returns the index of each shard's first sample, then the number of samples. Shards without samples are left out.
  std::vector<std::int64_t> shard_starts() const {
    std::vector<std::int64_t> out;
    for (std::size_t i = 0; i < index_.samples.size(); ++i)
      if (i == 0 || index_.samples[i].shard != index_.samples[i - 1].shard) out.push_back(static_cast<std::int64_t>(i));
    out.push_back(size());
    return out;
  }

  void group_by_shard() {
    groups_ = shard_starts();
    std::uint64_t largest = 0;
    for (const std::string& path : index_.paths)
      if (remote::is_remote(path)) largest = std::max(largest, remote::store()->look_up(path).size);
    const auto fit = static_cast<std::int64_t>(remote::store()->limit() / std::max<std::uint64_t>(1, largest));
    const std::int64_t shards = std::ssize(groups_) - 1, open = std::min(settings_.open_shards, shards);
    if (fit < open)
      user_error(where(), ": samples are drawn from ", open, " shards at a time (open_shards) of up to ",
                 format_bytes(static_cast<double>(largest)), ", which take more than data.cache.size_mb: set it to ",
                 (open * static_cast<std::int64_t>(largest) >> 20) + 1, " or more, or open_shards to ", std::max<std::int64_t>(fit, 1),
                 " or less");
    read_ahead_ = std::max<std::int64_t>(1, std::min(remote::store()->ahead(), fit - open) * size() / shards);
  }

  std::string where() const { return first_and_more(index_.paths, "shards"); }

  void report() const {
    for (const std::string& problem : index_.problems) log::warning(problem);
    for (const std::string& remark : index_.remarks.lines(index_.paths.size())) log::warning(remark);
    if (index_.samples.empty()) {
      std::string why;
      for (const std::string& problem : index_.problems) why = "; " + problem;
      user_error(where(), ": holds no samples (files named KEY.jpg, KEY.txt, ...)", why);
    }
    std::int64_t without_image = 0;
    const auto has_image = [&](const ShardSample& sample) {
      return std::ranges::any_of(settings_.image_keys, [&](const std::string& name) { return sample.find(name) != nullptr; });
    };
    for (const ShardSample& sample : index_.samples) without_image += has_image(sample) ? 0 : 1;
    if (without_image == size())
      user_error(where(), ": no sample has an image: the members found are ", join_names(member_names()), ", the image is looked for in ",
                 join_names(settings_.image_keys), " (image_keys)");
    if (without_image > 0)
      log::warning(where(), ": ", without_image, " of ", size(), " samples have no image (", join_names(settings_.image_keys), ")");
  }

  std::vector<std::string> member_names() const {
    std::vector<std::string> names;
    for (const auto& [name, count] : index_.names)
      if (names.size() < kNamed) names.push_back(name);
    return names;
  }

  // Lists the fields of the first json member: " (json: caption and url)". Errors are ignored, because the text is only an addition to a
  // message about another problem.
  std::string json_fields() const {
    const auto found = std::ranges::find_if(index_.samples, [](const ShardSample& sample) { return sample.find("json") != nullptr; });
    if (found == index_.samples.end()) return {};
    try {
      const IndexedRow row(*found, index_.paths[found->shard], false);
      const nlohmann::json* const fields = row.side();
      return fields == nullptr ? "" : " (json: " + printable(join_names(json_names(*fields, kNamed)), 1000) + ")";
    } catch (const std::exception&) {
      return {};
    }
  }

  // Returns the fields of a sample's json and npy members; null if there is neither, or if one of them is damaged.
  nlohmann::json make_json(const ShardSample& sample, const ShardFile& file) const {
    const auto bytes = [&](const ShardMember& member) { return file.read(member.offset, member.size); };
    nlohmann::json out;
    if (const ShardMember* member = sample.find("json")) out = parse_python_json(bytes(*member));
    try {
      if (const ShardMember* member = sample.find("npy"); member != nullptr && !settings_.npy_fields.empty())
        add_npy_fields(settings_.npy_fields, bytes(*member), out);
    } catch (const SampleError&) {
      return nullptr;
    }
    return out.is_discarded() ? nlohmann::json(nullptr) : out;
  }

  WebDatasetSettings settings_;
  ShardIndex index_;
  ShardMapper mapper_;
  std::vector<std::int64_t> groups_;  // shard_starts() if a shard is remote
  std::int64_t read_ahead_ = 0;
};

}  // namespace

IndexPlace config::Value<IndexPlace>::read(const Node& node, const std::string& path, const IndexPlace&) {
  const std::string text = Value<std::string>::read(node, path, {});
  if (text == "beside" || text == "off") return {text};
  IndexPlace out;
  static_cast<OutputPath&>(out) = Value<OutputPath>::read(node, path, {});
  return out;
}

std::shared_ptr<Source> make_webdataset(const WebDatasetSettings& given) {
  WebDatasetSettings settings = given;
  for (auto* keys : {&settings.image_keys, &settings.caption_keys, &settings.label_keys, &settings.mask_keys, &settings.depth_keys,
                     &settings.summary_keys, &settings.object_keys, &settings.region_keys})
    for (std::string& key : *keys)
      if (!key.starts_with("json.")) key = as_member_name(std::move(key));  // the members' names are in lower case, too, but not JSON's
  const std::vector<std::string> shards = expand_shards(settings.path);
  if (std::any_of(shards.begin(), shards.end(), is_stream)) return make_streamed_webdataset(settings, shards);
  return std::make_shared<WebDataset>(settings, shards);
}

}  // namespace tessera
