#include <algorithm>
#include <filesystem>
#include <set>

#include "src/base/printable.h"
#include "src/data/formats/captions.h"
#include "src/data/formats/class_names.h"
#include "src/data/formats/table.h"
#include "src/data/sources/csv.h"
#include "src/data/sources/field_source.h"
#include "src/data/sources/listed_pictures.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kNoColumn = static_cast<std::size_t>(-1);

/// A class label as written in a table. Kept until the names of all classes are known.
struct WrittenLabel {
  std::size_t picture;
  std::string text;
  std::string place;
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
    if (std::ranges::find(columns, settings.image_key) != columns.end()) return separator;
    if (!several) several = separator;
  }
  return several.value_or('\t');
}

class CsvReader {
 public:
  explicit CsvReader(const CsvSettings& settings) : settings_(settings) {
    if (settings.caption_key.empty() && settings.text_fields.empty())
      user_error("csv: caption_key is empty; expected at least one column, or text_fields");
  }

  PictureList read() {
    const std::vector<std::string> paths = expand_paths(settings_.path, ".csv");
    if (settings_.root) config::require(*settings_.root);
    for (const std::string& path : paths) read_table(path);
    set_labels();
    list_.described =
        paths.size() == 1 ? "csv " + paths[0] : concat("csv ", paths[0], " and ", paths.size() - 1, " more tables");
    list_.tables = paths;
    list_.background_class = settings_.background_class;
    list_.region_tensor = settings_.region_tensor;
    list_.text_fields = settings_.text_fields;
    describe_columns();
    return std::move(list_);
  }

 private:
  struct Columns {
    std::size_t image, label, summary, objects, regions, mask;
    std::vector<std::size_t> captions, texts;
  };

  Columns find_columns(const Table& table) const {
    const auto optional = [&](const std::string& name, const char* setting) {
      return name.empty() ? kNoColumn : table.column(name, setting);
    };
    Columns out{table.column(settings_.image_key, "image_key"),
                optional(settings_.label_key, "label_key"),
                optional(settings_.summary_key, "summary_key"),
                optional(settings_.object_key, "object_key"),
                optional(settings_.region_key, "region_key"),
                optional(settings_.mask_key, "mask_key"),
                {},
                {}};
    for (const std::string& name : settings_.text_fields) out.texts.push_back(table.column(name, "text_fields"));
    for (const std::string& name : settings_.caption_key) out.captions.push_back(table.column(name, "caption_key"));
    return out;
  }

  void read_table(const std::string& path) {
    Table table(path, separator_for(settings_, path));
    const Columns columns = find_columns(table);
    std::optional<std::string> prefix;  // text to put before this table's file names; determined at the table's first row
    const auto field = [](const std::vector<std::string>& row, std::size_t column) {
      return column == kNoColumn ? std::string() : std::string(strip(row[column]));
    };
    std::string problem;
    for (std::vector<std::string> row; table.next(row, &problem);) {
      ListedPicture picture;
      const std::string name = field(row, columns.image), place = concat(path, ":", table.line());
      if (!problem.empty()) picture.detail().bad.emplace("bad_row", problem);
      if (name.empty() && problem.empty())
        picture.detail().bad.emplace("no_image", concat(place, ": names no image (column ", settings_.image_key, ")"));
      if (picture.is_bad()) {
        picture.name = place;
        list_.pictures.push_back(std::move(picture));
        continue;
      }
      if (!prefix) prefix = prefix_of(path, name);
      const auto file = [&](const std::string& written) {
        return written.empty() || prefix->empty() ? written : (fs::path(*prefix) / written).generic_string();
      };
      picture.name = file(name);
      for (const std::size_t column : columns.captions)
        add_caption(field(row, column), picture.captions);
      ListedPicture::More more{field(row, columns.summary), field(row, columns.objects),
                               file(field(row, columns.regions)), file(field(row, columns.mask))};
      for (const std::size_t column : columns.texts) {
        const bool lacks = strip(row[column]).empty();
        more.texts.push_back(lacks ? std::nullopt : std::optional(FieldText{{row[column]}, /*is_list=*/false}));
      }
      if (!more.texts.empty() || !(more.summary + more.object_tags + more.region_file + more.mask_file).empty())
        picture.more = std::make_unique<ListedPicture::More>(std::move(more));
      if (std::string label = field(row, columns.label); !label.empty())
        labels_.push_back({list_.pictures.size(), std::move(label), place});
      list_.pictures.push_back(std::move(picture));
    }
  }

  void describe_columns() {
    const auto add = [&](const char* field, const std::string& column, const char* setting) {
      list_.columns[field] =
          column.empty() ? concat("no column is named for the ", field, " (", setting, ")")
                         : concat("the ", field, " is looked for in the column ", column, " (", setting, ")");
    };
    add("label", settings_.label_key, "label_key");
    if (!settings_.label_key.empty())
      list_.columns["label"] += concat(", and ", list_.class_names.size(), " class names are known (classes)");
    add("mask", settings_.mask_key, "mask_key");
    add("caption", settings_.caption_key.empty() ? "" : join_names(settings_.caption_key), "caption_key");
    add("captions", settings_.text_fields.empty() ? "" : join_names(settings_.text_fields), "text_fields");
  }

  // Returns the prefix for the file names in `table`. The prefix is the absolute path of the table's image folder, or "" if the first
  // table has the same image folder.
  std::string prefix_of(const std::string& table, const std::string& first) {
    const std::string folder = settings_.root.value_or(folder_of(table, first));
    if (!std::exchange(has_folder_, true)) list_.folder = folder;
    return list_.folder == folder ? std::string() : fs::absolute(folder).string();
  }

  static std::string folder_of(const std::string& table, const std::string& first) {
    const fs::path beside = fs::path(table).parent_path();
    std::error_code ignored;
    return !fs::exists(beside / first, ignored) && fs::exists(first, ignored) ? std::string() : beside.string();
  }

  static bool is_index(const std::string& text) {
    return text == "-1" || (text.size() < 10 && text.find_first_not_of("0123456789") == std::string::npos);
  }

  void set_labels() {
    if (settings_.classes) {
      list_.class_names = read_class_names(*settings_.classes);
    } else if (!std::all_of(labels_.begin(), labels_.end(), [](const auto& each) { return is_index(each.text); })) {
      std::set<std::string> names;
      for (const WrittenLabel& each : labels_) names.insert(each.text);
      list_.class_names.assign(names.begin(), names.end());
      for (const WrittenLabel& each : labels_)
        list_.pictures[each.picture].label =
            std::lower_bound(list_.class_names.begin(), list_.class_names.end(), each.text) - list_.class_names.begin();
      return;
    }
    for (const WrittenLabel& each : labels_) {
      try {
        Sample sample;
        set_label(each.text, list_.class_names, "label_key", sample);
        list_.pictures[each.picture].label = sample.label;
      } catch (const SampleError& error) {
        list_.pictures[each.picture].detail().bad.emplace(error.reason(), concat(each.place, ": ", error.what()));
      }
    }
  }

  const CsvSettings& settings_;
  PictureList list_;
  bool has_folder_ = false;
  std::vector<WrittenLabel> labels_;
};

/// Images listed in tables. judge() reads the tables again, because a filter may use any column.
class CsvSource : public ListedPictures, public FieldSource {
 public:
  explicit CsvSource(const CsvSettings& settings) : ListedPictures(CsvReader(settings).read()), settings_(settings) {}

  std::vector<FilterVerdict> judge(const RowFilter& filter) const override {
    std::vector<FilterVerdict> out;
    for (const std::string& path : expand_paths(settings_.path, ".csv")) {
      Table table(path, separator_for(settings_, path));
      std::vector<std::size_t> columns;
      for (const std::string& name : filter.fields()) columns.push_back(table.column(name, "filter"));
      std::string problem;
      for (std::vector<std::string> row; table.next(row, &problem);)
        out.push_back(!problem.empty() ? FilterVerdict{FilterVerdict::unreadable}
                                       : filter.judge([&](std::size_t field) {
                                           const std::string_view text = strip(row[columns[field]]);
                                           return text.empty() ? nlohmann::json(nullptr) : nlohmann::json(text);
                                         }));
    }
    return out;
  }

 private:
  const CsvSettings settings_;
};

std::string setting_of(char separator) {
  return separator == '\t' ? "tab" : separator == ',' ? "comma" : std::string(1, separator);
}

/// Formats a text as a value in a YAML flow mapping.
std::string flow_value(const std::string& text) {
  return text.find_first_of(",[]{}:#'\"") == std::string::npos ? text : "'" + text + "'";
}

}  // namespace

CsvSettings csv_settings_of(const std::string& path, const std::string& given) {
  CsvSettings out;
  out.path.items = {path};
  const char separator = separator_for(out, path);
  out.separator = setting_of(separator);
  const std::vector<std::string> columns = Table(path, separator).columns();
  std::vector<std::string> missing;
  for (const std::string& name : {out.image_key, out.caption_key.front()})
    if (std::find(columns.begin(), columns.end(), name) == columns.end()) missing.push_back(name);
  if (missing.empty()) return out;
  user_error(given, ": has no column ", join_names(missing), "; its columns are: ",
             printable(join_names(columns), 1000), ". Name the columns of images and captions: {name: csv, path: ",
             flow_value(path), ", separator: ", flow_value(*out.separator), ", image_key: ", flow_value(columns.front()),
             ", caption_key: ", flow_value(columns[std::min<std::size_t>(1, columns.size() - 1)]), "}");
}

std::shared_ptr<IndexedSource> make_csv(const CsvSettings& settings) {
  return std::make_shared<CsvSource>(settings);
}

}  // namespace tessera
