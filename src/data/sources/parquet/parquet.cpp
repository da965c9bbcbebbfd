#include "src/data/sources/parquet.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <unordered_map>

#include "src/base/digest.h"
#include "src/base/printable.h"
#include "src/data/formats/annotations.h"
#include "src/data/formats/captions.h"
#include "src/data/formats/class_names.h"
#include "src/data/formats/column_path.h"
#include "src/data/formats/in_threads.h"
#include "src/data/formats/line_breaks.h"
#include "src/data/formats/sample_file.h"
#include "src/data/formats/text_fields.h"
#include "src/data/sources/field_source.h"
#include "src/data/sources/one_per_image.h"
#include "src/data/sources/parquet/group_cache.h"
#include "src/data/sources/parquet/table_files.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/data/grouped_source.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::size_t kOpeningThreads = 8;
constexpr std::int64_t kMostOpenGroups = 64;
constexpr std::size_t kTextGroups = 4;  // number of cached groups that hold only text columns, for reading captions in order

/// A column that the settings name, or a member of a column. The settings name a member as COLUMN.MEMBER or COLUMN.MEMBER.MEMBER...
struct ReadColumn {
  std::string name;  // the name as written in the settings
  std::size_t place = 0;
  std::vector<std::string> below;
};

/// The names of columns that are read together.
struct ColumnSet {
  std::vector<std::string> names;

  std::size_t add(const std::string& column) {
    const auto found = std::ranges::find(names, column);
    if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
    names.push_back(column);
    return names.size() - 1;
  }
  ReadColumn add(const std::string& name, const ColumnPath& path) { return {name, add(path.column), path.below}; }
};

Json value_of(const ColumnGroup& group, const ReadColumn& column, std::int64_t row) {
  return value_below(group.json(column.place, row), column.below);
}

/// The captions and text fields of rows.
struct TextColumns {
  std::vector<ReadColumn> captions, texts;

  void read(const ColumnGroup& group, std::int64_t row, Sample& sample) const {
    for (const ReadColumn& column : captions) {
      const Json value = value_of(group, column, row);
      const std::ptrdiff_t before = std::ssize(sample.captions);
      if (value.is_string()) add_caption(value.get_ref<const std::string&>(), sample.captions);
      if (value.is_array())
        for (const Json& each : value)
          if (each.is_string()) add_caption(each.get_ref<const std::string&>(), sample.captions);
      // Columns may repeat a caption, as txt and json do.
      const auto own = sample.captions.begin() + before;
      const auto is_known = [&](const std::string& text) {
        return std::find(sample.captions.begin(), own, text) != own;
      };
      sample.captions.erase(std::remove_if(own, sample.captions.end(), is_known), sample.captions.end());
    }
    if (texts.empty()) return;
    Json object = Json::object();
    std::vector<std::string> names;
    for (const ReadColumn& column : texts) {
      names.push_back(column.name);
      object[column.name] = value_of(group, column, row);
    }
    sample.texts = text_fields_of(object, names, sample.key);
    if (sample.captions.empty()) set_captions_from_fields(sample);
  }
};

/// How a row stores its image.
struct PictureColumn {
  enum class Form { bytes, file_name, bytes_or_file_name };
  std::size_t place = 0;
  std::string member;  // member of the column's structure; empty: the column itself
  Form form = Form::bytes;
};

bool has_member(const Column& column, const char* name) {
  return std::ranges::any_of(column.members, [&](const Column& each) { return each.name == name; });
}

bool is_list_of_numbers(const Column& column) {
  return column.kind == Column::Kind::list &&
         (column.members[0].kind == Column::Kind::number || is_list_of_numbers(column.members[0]));
}

bool holds_binary(const Column& column) {
  return column.kind == Column::Kind::binary || std::ranges::any_of(column.members, holds_binary);
}

/// Reads class names from the metadata that Hugging Face's datasets write.
std::vector<std::string> class_names_in(const std::string& metadata, const std::string& column) {
  const Json json = Json::parse(metadata, nullptr, false);
  std::vector<std::string> names;
  const Json found = value_below(json.is_object() ? json : Json::object(), {"info", "features", column, "names"});
  for (const Json& each : found)
    if (each.is_string()) names.push_back(each.get<std::string>());
  return found.is_array() && names.size() == found.size() ? names : std::vector<std::string>();
}

class ParquetSource : public IndexedSource, public GroupedSource, public FieldSource, public ImageIds {
 public:
  explicit ParquetSource(const ParquetSettings& settings)
      : settings_(settings), paths_(table_files(settings.path)), files_(paths_.size()) {
    if (settings.root) config::require(*settings.root);
    for_each_in_threads(paths_.size(), kOpeningThreads, [&](std::size_t i) { files_[i] = open_columns(paths_[i]); });
    list_groups();
    choose_columns();
    check_columns();
    cache_ = std::make_unique<GroupCache>(static_cast<std::size_t>(open_groups_ + 2));
  }

  std::int64_t size() const override { return starts_.back(); }
  std::vector<std::string> class_names() const override { return classes_; }
  std::vector<std::int64_t> group_starts() const override { return starts_; }
  std::int64_t open_groups() const override { return open_groups_; }
  std::int64_t data_file_count() const override { return std::ssize(paths_); }
  DataFile data_file(std::int64_t index) const override {
    const std::string& path = paths_.at(static_cast<std::size_t>(index));
    return {fs::path(path).filename().string(), path};
  }

  std::string describe() const override {
    return concat("parquet ", paths_[0], paths_.size() == 1 ? "" : concat(" and ", paths_.size() - 1, " more files"),
                  ", ", with_thousands(size()), " samples");
  }

  std::string name_of(std::int64_t index) const override {
    const Place place = place_of(index);
    return concat("row ", place.row_of_file, " of ", paths_[place.file]);
  }

  std::string describe_fields(const std::vector<std::string>& needed) const override {
    const std::map<std::string, std::pair<const std::vector<std::string>*, const char*>> keys = {
        {"image", {&settings_.image_keys, "image_keys"}},
        {"caption", {&settings_.caption_keys, "caption_keys"}},
        {"captions", {&settings_.text_fields, "text_fields"}},
        {"label", {&settings_.label_keys, "label_keys"}},
        {"summary", {&settings_.summary_keys, "summary_keys"}}};
    std::string text = concat("Its columns are ", column_names(files_[0]->columns()));
    for (const std::string& field : needed)
      if (const auto found = keys.find(field); found != keys.end())
        text += found->second.first->empty()
                    ? concat("; no column is named for ", field, " (", found->second.second, ")")
                    : concat("; ", field, " is looked for in ", join_names(*found->second.first), " (",
                             found->second.second, ")");
    return text;
  }

  // Reads only the columns that the filter uses.
  std::vector<FilterVerdict> judge(const RowFilter& filter) const override {
    ColumnSet set;
    std::vector<ReadColumn> columns;
    for (const std::string& name : filter.fields()) {
      const auto path = find_column(files_[0]->columns(), name);
      if (!path)
        user_error(paths_[0], ": has no column ", printable(name), " (filter); its columns are ",
                   column_names(files_[0]->columns()));
      columns.push_back(set.add(name, *path));
    }
    std::vector<FilterVerdict> out(static_cast<std::size_t>(size()), FilterVerdict{FilterVerdict::unreadable});
    for_each_group(set.names, "the filter", [&](std::size_t number, const ColumnGroup& group) {
      const auto first = out.begin() + starts_[number];
      for (std::int64_t row = 0; row < group.rows(); ++row)
        first[row] = filter.judge([&](std::size_t field) { return value_of(group, columns[field], row); });
    });
    return out;
  }

  // Rows have the same image if they name the same file or, where they name none, if their keys are equal. If they hold bytes, these must
  // be equal, too, because datasets' writers drop the folders of names.
  std::vector<std::uint64_t> image_ids() const override {
    std::call_once(ids_found_, [this] { find_image_ids(); });
    return ids_;
  }

  Sample get(std::int64_t index) const override {
    const Place place = place_of(index);
    const auto group = read_group(place, *cache_, columns_.names);
    const std::string key = key_of(*group, place);
    return read_keyed(key, [&] { return read(*group, place, key); });
  }

  std::vector<std::string> captions(std::int64_t index) const override {
    const Place place = place_of(index);
    Sample sample;
    sample.key = file_and_row(place);
    texts_alone_.read(*read_group(place, text_cache_, text_columns_.names), place.row, sample);
    return std::move(sample.captions);
  }

 private:
  struct Group {
    std::size_t file = 0;
    std::int64_t number = 0;         // index of the row group in its file
    std::int64_t first_of_file = 0;  // index of the group's first row in the file
  };
  struct Place {
    std::size_t group = 0, file = 0;
    std::int64_t row = 0;          // index of the row in its group
    std::int64_t row_of_file = 0;  // index of the row in its file
  };

  // Reads columns of all groups in threads, and calls take(number of the group, its columns). A damaged group is left out, with a warning
  // that says what it cannot be read for.
  template <class Take>
  void for_each_group(const std::vector<std::string>& names, const char* purpose, const Take& take,
                      const std::function<bool(std::size_t)>& is_wanted = {}) const {
    for_each_in_threads(groups_.size(), kOpeningThreads, [&](std::size_t number) {
      if (is_wanted && !is_wanted(number)) return;
      const Group& group = groups_[number];
      try {
        take(number, *files_[group.file]->read(group.number, names));
      } catch (const std::system_error& error) {
        user_error(paths_[group.file], ": ", printable(error.what()));
      } catch (const UserError&) {
        throw;
      } catch (const std::runtime_error& error) {
        log::warning(paths_[group.file], ": row group ", group.number, " cannot be read for ", purpose, ": ",
                     printable(error.what()));
      }
    });
  }

  void find_image_ids() const {
    using Form = PictureColumn::Form;
    const bool is_pair = picture_.form == Form::bytes_or_file_name;
    const std::string member = is_pair ? "path" : picture_.member;
    const std::string column = picture_name_ + (member.empty() ? "" : "." + member);
    const bool named = picture_.form != Form::bytes && find_column(files_[0]->columns(), column);
    const bool keyed = key_ && picture_.form != Form::file_name;
    if (!named && !keyed) return;
    ColumnSet set;
    const std::size_t name_place = named ? set.add(column) : 0;
    ReadColumn key;
    if (keyed) key = {key_->name, set.add(columns_.names[key_->place]), key_->below};
    std::vector<std::uint64_t> ids(static_cast<std::size_t>(size()));
    for_each_group(set.names, "the names of its images", [&](std::size_t number, const ColumnGroup& group) {
      FileIds files;
      for (std::int64_t row = 0; row < group.rows(); ++row) {
        std::uint64_t& id = ids[static_cast<std::size_t>(starts_[number] + row)];
        const std::string name = named ? std::string(group.bytes(name_place, row, member).value_or("")) : std::string();
        const std::string own = keyed && name.empty() ? text_at(group, key, row) : std::string();
        if (!name.empty())
          id = files.of((folder_of(groups_[number].file) / name).string());
        else if (!own.empty())
          id = fingerprint(fs::path(own).lexically_normal().native());
      }
    });
    std::unordered_map<std::uint64_t, std::int64_t> rows_of;
    for (const std::uint64_t id : ids) ++rows_of[id];
    const auto is_alone = [&](std::uint64_t id) { return id == 0 || rows_of.at(id) == 1; };
    std::ranges::replace_if(ids, is_alone, 0);
    if (picture_.form != Form::file_name) add_bytes(is_pair, ids);
    ids_ = std::move(ids);
  }

  // Makes ids differ if the bytes of images do.
  void add_bytes(bool is_pair, std::vector<std::uint64_t>& ids) const {
    if (const auto shared = std::ssize(ids) - std::ranges::count(ids, 0U); shared > 0)
      log::info("parquet ", paths_[0], ": reading the images of ", with_thousands(shared),
                " rows that share names or keys, to find equal ones");
    const auto has_ids = [&](std::size_t number) {
      return std::any_of(ids.begin() + starts_[number], ids.begin() + starts_[number + 1],
                         [](std::uint64_t id) { return id != 0; });
    };
    for_each_group(
        {picture_name_}, "equal images",
        [&](std::size_t number, const ColumnGroup& group) {
          for (std::int64_t row = 0; row < group.rows(); ++row) {
            std::uint64_t& id = ids[static_cast<std::size_t>(starts_[number] + row)];
            const auto bytes = group.bytes(0, row, is_pair ? "bytes" : picture_.member);
            if (id != 0 && bytes) id = fingerprint(*bytes, id);
          }
        },
        has_ids);
  }

  fs::path folder_of(std::size_t file) const {
    return settings_.root ? fs::path(settings_.root->name) : fs::path(paths_[file]).parent_path();
  }

  void list_groups() {
    std::int64_t largest = 1;
    starts_ = {0};
    for (std::size_t file = 0; file < files_.size(); ++file) {
      const std::vector<std::int64_t>& rows = files_[file]->group_rows();
      std::int64_t first = 0;
      for (std::size_t i = 0; i < rows.size(); first += rows[i++]) {
        if (rows[i] == 0) continue;
        groups_.push_back({file, static_cast<std::int64_t>(i), first});
        starts_.push_back(starts_.back() + rows[i]);
        largest = std::max(largest, files_[file]->group_bytes(static_cast<std::int64_t>(i)));
      }
      if (!files_[file]->problem().empty())
        log::warning(paths_[file], ": is cut off or damaged after its first ", with_thousands(first),
                     " rows, which are used (", printable(files_[file]->problem()), ")");
    }
    if (groups_.empty())
      user_error(paths_[0], paths_.size() > 1 ? concat(" and ", paths_.size() - 1, " more files") : "",
                 ": hold no rows");
    // The number of open groups is a power of two. So if the number of ranks is also a power of two, and not larger than the number of open
    // groups, each rank reads groups of its own.
    const std::int64_t fit = std::clamp<std::int64_t>((settings_.memory_mb << 20) / largest, 1, kMostOpenGroups);
    open_groups_ = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(fit)));
    if (largest > settings_.memory_mb << 20)
      log::warning("parquet ", paths_[0], ": a row group takes ", format_bytes(static_cast<double>(largest)),
                   ", more than memory_mb: write files with smaller row groups (row_group_size=1000)");
  }

  void choose_columns() {
    const std::vector<Column>& there = files_[0]->columns();
    for (const std::string& name : settings_.image_keys)
      if (const auto path = find_column(there, name); path && !has_picture_) set_picture(name, *path);
    if (!has_picture_)
      user_error(paths_[0], ": no column has images: its columns are ", column_names(there),
                 ", the image is looked for in ", join_names(settings_.image_keys), " (image_keys)");
    texts_ = text_columns(columns_);
    texts_alone_ = text_columns(text_columns_);
    label_ = first_of(settings_.label_keys);
    summary_ = first_of(settings_.summary_keys);
    key_ = first_of({"key", "__key__"});
    for (const Column& column : there)
      if (is_kept(column)) kept_.push_back({column.name, columns_.add(column.name), {}});
    if (settings_.side_fields)
      for (const std::string& name : *settings_.side_fields) {
        const auto path = find_column(there, name);
        if (!path)
          user_error(paths_[0], ": has no column ", name, " (side_fields); its columns are ", column_names(there));
        kept_.push_back(columns_.add(name, *path));
      }
    if (settings_.classes)
      classes_ = read_class_names(*settings_.classes);
    else if (label_ && label_->below.empty())
      classes_ = class_names_in(files_[0]->metadata("huggingface"), label_->name);
  }

  void set_picture(const std::string& name, const ColumnPath& path) {
    const auto column =
        std::ranges::find_if(files_[0]->columns(), [&](const Column& each) { return each.name == path.column; });
    const bool is_pair = path.kind == Column::Kind::structure && path.below.empty() && has_member(*column, "bytes");
    if (path.below.size() > 1 || (!is_pair && path.kind != Column::Kind::binary && path.kind != Column::Kind::text))
      user_error(paths_[0], ": column ", printable(name), " (image_keys) is of type ", printable(path.type),
                 "; expected an image's bytes, {bytes, path} or a file name");
    picture_ = {columns_.add(path.column), path.below.empty() ? std::string() : path.below[0],
                is_pair                             ? PictureColumn::Form::bytes_or_file_name
                : path.kind == Column::Kind::binary ? PictureColumn::Form::bytes
                                                    : PictureColumn::Form::file_name};
    picture_name_ = path.column;
    has_picture_ = true;
  }

  bool is_kept(const Column& column) const {
    return !settings_.side_fields && column.name != picture_name_ && !holds_binary(column) && !is_list_of_numbers(column);
  }

  TextColumns text_columns(ColumnSet& set) const {
    TextColumns out;
    for (const std::string& name : settings_.caption_keys)
      if (const auto path = find_column(files_[0]->columns(), name)) out.captions.push_back(set.add(name, *path));
    for (const std::string& name : settings_.text_fields) {
      const auto path = find_column(files_[0]->columns(), name);
      if (!path)
        user_error(paths_[0], ": has no column ", printable(name), " (text_fields); its columns are ",
                   column_names(files_[0]->columns()));
      out.texts.push_back(set.add(name, *path));
    }
    return out;
  }

  std::optional<ReadColumn> first_of(const std::vector<std::string>& names) {
    for (const std::string& name : names)
      if (const auto path = find_column(files_[0]->columns(), name)) return columns_.add(name, *path);
    return std::nullopt;
  }

  // Throws UserError unless all files have the columns that are read from the first file.
  void check_columns() const {
    for (std::size_t i = 1; i < files_.size(); ++i)
      for (const std::string& name : columns_.names) {
        const auto of = [&](std::size_t file) { return find_column(files_[file]->columns(), name); };
        const auto here = of(i);
        if (!here || (name == picture_name_ && here->kind != of(0)->kind))
          user_error(paths_[i], here ? ": its column " : ": has no column ", printable(name),
                     here ? concat(" is of type ", printable(here->type)) : "", ", unlike ", paths_[0]);
      }
  }

  Place place_of(std::int64_t index) const {
    const auto next = std::upper_bound(starts_.begin(), starts_.end(), index);
    const auto group = static_cast<std::size_t>(next - starts_.begin() - 1);
    const Group& of = groups_.at(group);
    return {group, of.file, index - starts_[group], of.first_of_file + index - starts_[group]};
  }

  std::string file_and_row(const Place& place) const {
    return concat(fs::path(paths_[place.file]).filename().string(), ":", place.row_of_file);
  }

  std::shared_ptr<const ColumnGroup> read_group(const Place& place, GroupCache& cache,
                                                const std::vector<std::string>& names) const {
    const Group& group = groups_[place.group];
    try {
      return cache.get(static_cast<std::int64_t>(place.group),
                       [&] { return files_[group.file]->read(group.number, names); });
    } catch (const std::system_error& error) {
      user_error(paths_[group.file], ": ", printable(error.what()));
    } catch (const std::runtime_error& error) {
      throw SampleError(
          "bad_row_group",
          concat(paths_[group.file], ": row group ", group.number, " cannot be read: ", printable(error.what())),
          file_and_row(place));
    }
  }

  std::string key_of(const ColumnGroup& group, const Place& place) const {
    std::string key = key_ ? text_at(group, *key_, place.row) : std::string();
    return key.empty() ? file_and_row(place) : key;
  }

  static std::string text_at(const ColumnGroup& group, const ReadColumn& column, std::int64_t row) {
    return json_text({{"", value_of(group, column, row)}}, "");
  }

  Sample read(const ColumnGroup& group, const Place& place, const std::string& key) const {
    Sample sample;
    sample.key = key;
    texts_.read(group, place.row, sample);
    tell_line_breaks(sample.captions);
    Json kept = Json::object();
    for (const ReadColumn& column : kept_) kept[column.name] = value_of(group, column, place.row);
    read_annotations(kept, {}, sample);
    if (label_)
      if (const std::string label = text_at(group, *label_, place.row); !label.empty())
        set_label(label, classes_, "label_keys", sample);
    if (summary_) sample.summary = text_at(group, *summary_, place.row);
    read_picture(group, place, sample);
    return sample;
  }

  void tell_line_breaks(const std::vector<std::string>& captions) const {
    breaks_.add(captions);
    if (!captions.empty() && breaks_.are_many() && !told_breaks_.exchange(true))
      log::warning("parquet ", paths_[0], ": so far, ", breaks_.describe());
  }

  void read_picture(const ColumnGroup& group, const Place& place, Sample& sample) const {
    using Form = PictureColumn::Form;
    const bool is_pair = picture_.form == Form::bytes_or_file_name;
    const auto value = group.bytes(picture_.place, place.row, is_pair ? "bytes" : picture_.member);
    if (value && picture_.form != Form::file_name) {
      if (value->empty()) throw SampleError("empty_image", concat("sample ", printable(sample.key), ": the image has 0 bytes"));
      sample.encoded = *value;
      return;
    }
    const auto name = is_pair ? group.bytes(picture_.place, place.row, "path") : value;
    if (picture_.form == Form::bytes || !name || name->empty()) {
      sample.no_image = concat("sample ", printable(sample.key), " has no image: its column ", printable(picture_name_), " is null");
      return;
    }
    sample.encoded = read_sample_file((folder_of(place.file) / std::string(*name)).string(), "no_image");
    if (sample.encoded.empty())
      throw SampleError("empty_image", concat("sample ", printable(sample.key), ": the image has 0 bytes"));
  }

  const ParquetSettings settings_;
  const std::vector<std::string> paths_;
  std::vector<std::shared_ptr<const ColumnFile>> files_;
  std::vector<Group> groups_;
  std::vector<std::int64_t> starts_;  // first sample of each group, then the number of samples
  std::int64_t open_groups_ = 1;
  std::vector<std::string> classes_;

  ColumnSet columns_, text_columns_;  // all columns that samples need; the columns of their texts
  PictureColumn picture_;
  std::string picture_name_;
  bool has_picture_ = false;
  TextColumns texts_, texts_alone_;
  std::optional<ReadColumn> label_, summary_, key_;
  std::vector<ReadColumn> kept_;
  std::unique_ptr<GroupCache> cache_;
  mutable GroupCache text_cache_{kTextGroups};
  mutable LineBreaks breaks_;
  mutable std::atomic<bool> told_breaks_ = false;
  mutable std::once_flag ids_found_;
  mutable std::vector<std::uint64_t> ids_;
};

}  // namespace

std::shared_ptr<IndexedSource> make_parquet(const ParquetSettings& settings) {
  return std::make_shared<ParquetSource>(settings);
}

}  // namespace tessera
