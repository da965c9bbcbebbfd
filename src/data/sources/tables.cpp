#include "src/data/sources/tables.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include "src/base/printable.h"
#include "src/data/formats/data_files.h"
#include "src/data/formats/json_values.h"
#include "src/data/formats/row_filter.h"
#include "src/data/formats/table.h"
#include "src/data/sources/listed_images.h"
#include "src/io/stand_in.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// A row of a list. Its files are only names.
struct ListRow : Row {
  std::string place;    // "a.csv:7"
  std::string problem;  // why the row cannot be read; empty if it can

  std::optional<std::string> file(const std::string&, const char*) const override { return std::nullopt; }
  virtual bool has(const std::string& name) const = 0;
  virtual Json filter_value(const std::string& name) const = 0;
  virtual std::vector<std::string> names() const = 0;
};

using TakeRow = std::function<void(const ListRow&)>;

/// The files of a list in one format.
struct RowFiles {
  RowFiles(const RowSettings& given, const char* ending) : settings(given), paths(expand_paths(given.path, ending, FilePlaces::stores)) {}
  virtual ~RowFiles() = default;
  /// Calls take(row) for all rows of a file. Throws UserError if the file lacks a field that the settings name or, with a filter, one that
  /// the filter uses.
  virtual void for_each_row(const std::string& path, const RowFilter* filter, const TakeRow& take) const = 0;
  /// Returns the folder of the images of a file, given the name of its first image.
  virtual std::string folder_of(const std::string& path, const std::string& first) const = 0;
  /// Returns the file name that an image's name in the list stands for.
  virtual std::string image_file(const std::string& /*folder*/, const std::string& name) const { return name; }

  const RowSettings settings;
  const std::vector<std::string> paths;
  RowMapper::Format format = {.is_list = true};
  std::string if_empty;  // the message about a list without rows; empty: that of ListedImages
};

class CsvRow : public ListRow {
 public:
  CsvRow(const Table& table, const std::vector<std::string>& fields) : table_(table), fields_(fields) {}

  Json value(const std::string& name) const override {
    const std::string* const text = find(name);
    return text == nullptr || strip(*text).empty() ? Json() : Json(*text);
  }
  std::optional<std::string> text(const std::string& name) const override {
    const std::string* const text = find(name);
    return text == nullptr ? std::nullopt : std::optional<std::string>(strip(*text));
  }
  Json filter_value(const std::string& name) const override {
    const std::string stripped = *text(name);
    return stripped.empty() ? Json() : Json(stripped);
  }
  bool has(const std::string& name) const override { return find(name) != nullptr; }
  std::vector<std::string> names() const override {
    std::vector<std::string> out = table_.columns();
    std::erase_if(out, [&](const std::string& name) { return text(name)->empty(); });
    return out;
  }

 private:
  const std::string* find(const std::string& name) const {
    const auto found = std::ranges::find(table_.columns(), name);
    return found == table_.columns().end() ? nullptr : &fields_[static_cast<std::size_t>(found - table_.columns().begin())];
  }

  const Table& table_;
  const std::vector<std::string>& fields_;
};

/// Returns the separator from the settings. If the settings have none, tries tab, comma, semicolon and bar, and returns the first that
/// splits the table's first line into columns with an image column among them. If there is no such separator, returns the first that splits
/// this line at all, or else a tab.
char separator_for(const CsvSettings& settings, const std::string& path) {
  if (settings.separator) return separator_of(*settings.separator);
  std::optional<char> several;
  for (const char separator : {'\t', ',', ';', '|'}) {
    const std::vector<std::string> columns = Table(path, separator).columns();
    if (columns.size() == 1) continue;
    if (std::ranges::find_first_of(columns, settings.image_keys) != columns.end()) return separator;
    if (!several) several = separator;
  }
  return several.value_or('\t');
}

class CsvFiles : public RowFiles {
 public:
  explicit CsvFiles(const CsvSettings& given) : RowFiles(given, ".csv"), given_(given) {
    format.name = concat("csv ", first_and_more(paths, "tables"));
    if (given.caption_keys.empty() && given.text_fields.empty())
      user_error("csv: caption_keys is empty; expected at least one column, or text_fields");
    if (given.root && !remote::is_remote(given.root->name)) config::require(*given.root);
  }

  void for_each_row(const std::string& path, const RowFilter* filter, const TakeRow& take) const override {
    Table table(path, separator_for(given_, path));
    check_columns(table, filter);
    std::vector<std::string> fields;
    for (CsvRow row(table, fields); table.next(fields, &row.problem);) {
      row.place = path + ":" + std::to_string(table.line());
      take(row);
    }
  }

  std::string folder_of(const std::string& path, const std::string& first) const override {
    if (given_.root) return *given_.root;
    const std::string beside = remote::folder_of(path);
    std::error_code ignored;
    if (remote::is_remote(beside)) return beside;
    return !fs::exists(fs::path(beside) / first, ignored) && fs::exists(first, ignored) ? std::string() : beside;
  }

 private:
  void check_columns(const Table& table, const RowFilter* filter) const {
    using List = RowSettings::Names;
    const RowSettings& s = settings;
    for (const auto& [names, setting] : std::initializer_list<std::pair<const List*, const char*>>{
             {&s.image_keys, "image_keys"},   {&s.label_keys, "label_keys"}, {&s.summary_keys, "summary_keys"}, {&s.object_keys, "object_keys"},
             {&s.region_keys, "region_keys"}, {&s.mask_keys, "mask_keys"},   {&s.depth_keys, "depth_keys"}})
      if (!names->empty() && std::ranges::find_first_of(*names, table.columns()) == names->end()) table.column(names->front(), setting);
    for (const std::string& name : s.text_fields) table.column(name, "text_fields");
    for (const std::string& name : s.caption_keys) table.column(name, "caption_keys");
    for (const std::string& name : filter != nullptr ? filter->fields() : List()) table.column(name, "filter");
  }

  const CsvSettings given_;
};

class JsonRow : public ListRow {
 public:
  explicit JsonRow(Json item) : item_(std::move(item)) {}
  Json value(const std::string& name) const override { return json_member(item_, name); }
  Json filter_value(const std::string& name) const override { return value(name); }
  bool has(const std::string& name) const override { return item_.contains(name) || !value(name).is_null(); }
  std::vector<std::string> names() const override { return json_names(item_, 20); }

 private:
  const Json item_;
};

class JsonLinesFiles : public RowFiles {
 public:
  explicit JsonLinesFiles(const JsonLinesSettings& given) : RowFiles(given, ".jsonl"), given_(given) {
    format.name = concat("json_lines ", paths[0], given.split.empty() ? "" : concat(" (", given.split, ")"));
    format.sentences = given.sentences;
    if_empty = given.split.empty() ? ": holds no lines" : concat(": has no line with split \"", given.split, "\"");
    if (!given.images.empty() && !remote::is_remote(given.images.name)) config::require(given.images);
  }

  void for_each_row(const std::string& path, const RowFilter* /*filter*/, const TakeRow& take) const override {
    for_each_line(io::read_data_file(remote::LocalFile(path).path(), path), [&](const std::string& line, std::int64_t number) {
      Json item = parse_python_json(line);
      const bool is_object = item.is_object();
      if (is_object && !given_.split.empty() && item.value("split", Json()) != given_.split) return;
      JsonRow row(std::move(item));
      row.place = concat(path, ":", number);
      if (!is_object) row.problem = row.place + ": expected one JSON object per line";
      take(row);
    });
  }

  std::string folder_of(const std::string& path, const std::string& /*first*/) const override {
    return given_.images.empty() ? remote::folder_of(path) : given_.images.name;
  }
  std::string image_file(const std::string& folder, const std::string& name) const override { return find_image(folder, name); }

 private:
  const JsonLinesSettings given_;
};

/// Reads the rows of all files into a list.
class ListReader {
 public:
  explicit ListReader(const RowFiles& files) : files_(files), settings_(files.settings), mapper_(settings_, files.format) {}

  ImageList read() {
    for (const std::string& path : files_.paths) read_file(path);
    if (list_.images.empty() && !files_.if_empty.empty()) user_error(files_.paths[0], files_.if_empty);
    for (const std::string& name : settings_.caption_keys)
      if (const auto lacking = captionless_.find(name); lacking != captionless_.end() && !found_.contains(name))
        throw UserError(lacking->second);
    set_labels();
    list_.described = files_.format.name;
    list_.tables = files_.paths;
    list_.background_class = settings_.background_class;
    list_.region_tensor = settings_.region_tensor;
    list_.depth_units = settings_.depth_units;
    return std::move(list_);
  }

 private:
  void read_file(const std::string& path) {
    std::optional<std::string> folder, prefix;  // the folder of the file's images, and the text to put before their names
    files_.for_each_row(path, nullptr, [&](const ListRow& row) {
      ListedImage image;
      image.name = row.place;
      try {
        if (!row.problem.empty()) throw SampleError("bad_row", row.problem);
        const std::string given = image_of(row);
        if (!folder) {
          folder = files_.folder_of(path, given);
          prefix = prefix_of(*folder);
        }
        const auto file = [&](const std::string& name) {
          return name.empty() || prefix->empty() ? name : remote::joined(*prefix, name);
        };
        image.name = file(files_.image_file(*folder, given));
        read_row(row, image, file);
      } catch (const SampleError& error) {
        image.detail().bad = error;
      }
      list_.images.push_back(std::move(image));
    });
  }

  std::string image_of(const ListRow& row) const {
    for (const std::string& name : settings_.image_keys) {
      const Json image = row.value(name);
      if (image.is_null()) continue;
      if (!image.is_string())
        throw SampleError("no_image", concat(row.place, ": ", name, " (image_keys): expected a text, got ", image.type_name()));
      return std::string(strip(image.get_ref<const std::string&>()));
    }
    throw SampleError("no_image", lacking(row, join_names(settings_.image_keys), "image_keys"));
  }

  template <class File>
  void read_row(const ListRow& row, ListedImage& image, const File& file) {
    Sample sample;
    sample.key = image.name;
    for (const std::string& name : settings_.caption_keys) {
      if (found_.contains(name)) continue;
      if (row.has(name))
        found_.insert(name);
      else if (!captionless_.contains(name))
        captionless_[name] = lacking(row, name, "caption_keys");
    }
    mapper_.read_fields(row, sample);
    image.captions = std::move(sample.captions);
    const auto name_in = [&](const RowSettings::Names& names) { return file(first_text(row, names)); };
    if (std::string label = first_text(row, settings_.label_keys); !label.empty())
      labels_.push_back({list_.images.size(), std::move(label), row.place});
    std::string mask = name_in(settings_.mask_keys), depth = name_in(settings_.depth_keys), regions = name_in(settings_.region_keys);
    if (sample.texts.empty() && sample.negatives.empty() && sample.objects.empty() &&
        (sample.summary + sample.object_tags + sample.bad_boxes + mask + depth + regions).empty())
      return;
    image.more = std::make_unique<ListedImage::More>(
        ListedImage::More{std::move(sample), std::move(mask), std::move(depth), std::move(regions), std::nullopt});
  }

  // Returns the text to put before the names of files in `folder`: the folder's absolute path, or nothing if the first image has the same
  // folder.
  std::string prefix_of(const std::string& folder) {
    if (!std::exchange(has_folder_, true)) list_.folder = folder;
    return list_.folder == folder ? std::string() : remote::is_remote(folder) ? folder : fs::absolute(folder).string();
  }

  static bool is_index(const std::string& text) {
    return text == "-1" || (text.size() < 10 && text.find_first_not_of("0123456789") == std::string::npos);
  }

  // Sets the labels. If the settings name no classes and the labels are not all numbers, the classes are their sorted texts.
  void set_labels() {
    list_.class_names = mapper_.classes();
    if (!settings_.classes && !std::ranges::all_of(labels_, is_index, &WrittenLabel::text)) {
      std::set<std::string> names;
      for (const WrittenLabel& each : labels_) names.insert(each.text);
      list_.class_names.assign(names.begin(), names.end());
      for (const WrittenLabel& each : labels_)
        list_.images[each.image].label = std::ranges::lower_bound(list_.class_names, each.text) - list_.class_names.begin();
      return;
    }
    for (const WrittenLabel& each : labels_) {
      try {
        Sample sample;
        set_label(each.text, list_.class_names, sample);
        list_.images[each.image].label = sample.label;
      } catch (const SampleError& error) {
        list_.images[each.image].detail().bad.emplace(error.reason(), concat(each.place, ": ", error.what()));
      }
    }
  }

  static std::string lacking(const ListRow& row, const std::string& what, const char* setting) {
    const std::vector<std::string> names = row.names();
    return concat(row.place, ": has no ", what, " (", setting, "); its members are: ", names.empty() ? "none" : printable(join_names(names), 500));
  }

  /// A class label as written in a list. Kept until the names of all classes are known.
  struct WrittenLabel {
    std::size_t image;
    std::string text, place;
  };

  const RowFiles& files_;
  const RowSettings& settings_;
  const RowMapper mapper_;
  ImageList list_;
  bool has_folder_ = false;
  std::vector<WrittenLabel> labels_;
  std::set<std::string> found_;                     // the names of caption_keys that some row has
  std::map<std::string, std::string> captionless_;  // for each name of caption_keys, the message about the first row that lacks it
};

/// Images listed in rows. judge() reads the rows again, because a filter may use any field.
class RowList : public ListedImages, public FieldSource {
 public:
  explicit RowList(std::unique_ptr<const RowFiles> files) : ListedImages(ListReader(*files).read()), files_(std::move(files)) {}

  std::string describe_fields(const std::vector<std::string>& needed) const override {
    const std::string text = describe_rows(files_->settings, class_names().size(), needed);
    return text.empty() ? text : "In the list, " + text;
  }

  std::vector<FilterVerdict> judge(const RowFilter& filter) const override {
    std::vector<FilterVerdict> out;
    for (const std::string& path : files_->paths)
      files_->for_each_row(path, &filter, [&](const ListRow& row) {
        out.push_back(row.problem.empty() ? filter.judge([&](std::size_t field) { return row.filter_value(filter.fields()[field]); })
                                          : FilterVerdict{FilterVerdict::unreadable});
      });
    return out;
  }

 private:
  const std::unique_ptr<const RowFiles> files_;
};

/// Formats a text as a value in a YAML flow mapping.
std::string flow_value(const std::string& text) {
  return text.find_first_of(",[]{}:#'\"") == std::string::npos ? text : "'" + text + "'";
}

}  // namespace

CsvSettings csv_settings_of(const std::string& path, const std::string& given) {
  CsvSettings out;
  out.path.items = {path};
  const char separator = separator_for(out, path);
  out.separator = separator == '\t' ? "tab" : separator == ',' ? "comma" : std::string(1, separator);
  const std::vector<std::string> columns = Table(path, separator).columns();
  std::vector<std::string> missing;
  for (const std::string& name : {out.image_keys.front(), out.caption_keys.front()})
    if (!contains(columns, name)) missing.push_back(name);
  if (missing.empty()) return out;
  user_error(given, ": has no column ", join_names(missing), "; its columns are: ", printable(join_names(columns), 1000),
             ". Name the columns of images and captions: {name: csv, path: ", flow_value(path), ", separator: ", flow_value(*out.separator),
             ", image_keys: ", flow_value(columns.front()), ", caption_keys: ",
             flow_value(columns[std::min<std::size_t>(1, columns.size() - 1)]), "}");
}

std::shared_ptr<IndexedSource> make_csv(const CsvSettings& settings) {
  return std::make_shared<RowList>(std::make_unique<CsvFiles>(settings));
}

std::shared_ptr<IndexedSource> make_json_lines(const JsonLinesSettings& settings) {
  return std::make_shared<RowList>(std::make_unique<JsonLinesFiles>(settings));
}

}  // namespace tessera
