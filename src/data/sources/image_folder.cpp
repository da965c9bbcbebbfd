#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "src/data/formats/captions.h"
#include "src/data/formats/data_files.h"
#include "src/data/formats/image_endings.h"
#include "src/data/formats/json_values.h"
#include "src/data/sources/benchmarks.h"
#include "src/data/sources/listed_images.h"
#include "src/data/sources/rows.h"
#include "src/io/stand_in.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// Returns a path's extension in lower case.
std::string extension_of(const fs::path& path) {
  std::string extension = path.extension().string();
  std::ranges::transform(extension, extension.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension;
}

bool is_image(const fs::path& path) {
  return std::ranges::any_of(kImageEndings, [extension = extension_of(path)](const char* ending) { return extension == std::string(".") + ending; });
}

bool is_text(const fs::path& path) {
  return extension_of(path) == ".txt" || extension_of(path) == ".json";
}

bool is_all_digits(const std::string& name) {
  return !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
}

/// Returns whether a folder is a shard written by img2dataset. The name of such a folder is a number. In addition, a statistics file lies
/// next to the folder, or the folder contains .txt or .json files.
bool is_img2dataset_shard(const fs::path& folder) {
  if (!is_all_digits(folder.filename().string())) return false;
  if (fs::exists(folder.string() + "_stats.json")) return true;
  return std::ranges::any_of(fs::directory_iterator(folder), [](const fs::directory_entry& entry) { return is_text(entry.path()); });
}

/// The files with the texts of an image; empty paths if it has none.
struct TextFiles {
  std::string text, json;
};

/// Lists the images of a folder and the files with their texts.
class FolderReader {
 public:
  explicit FolderReader(const ImageFolderSettings& settings) : settings_(settings), root_(settings.path.name) {
    std::error_code ignored;
    if (settings.path.empty()) user_error("image_folder: path is not set; expected a folder of images");
    config::require(settings.path);
    if (!fs::is_directory(root_, ignored)) user_error(settings.path, ": expected a folder, got a file");
    list_images();
    tell_left_out();
    if (settings.texts) find_texts(*settings.texts);
    list.folder = root_.string();
    read_captions();
  }

  ImageList list;
  std::vector<TextFiles> texts;  // one for each image

 private:
  void list_images() {
    std::vector<std::string> folders;
    std::int64_t direct = 0;
    try {
      for (const auto& entry : fs::directory_iterator(root_)) {
        if (entry.path().filename().string().starts_with('.')) continue;
        if (entry.is_directory()) {
          if (!leads_back(entry)) folders.push_back(entry.path().filename().string());
        } else if (is_image(entry.path()) && entry.is_regular_file()) {
          ++direct;
        }
      }
      std::ranges::sort(folders);
      if (are_classes(folders))
        add_classes(folders);
      else
        add_images(root_, -1);
      if (list.images.empty()) {
        list.class_names.clear();
        left_out_.clear();
        add_images(root_, -1, /*deep=*/false);
      } else if (direct > 0 && !list.class_names.empty()) {
        log::warning(settings_.path, ": ", with_thousands(direct), direct == 1 ? " image is" : " images are",
                     " directly in it, next to class folders that hold images, and ", direct == 1 ? "is" : "are", " not used");
      }
    } catch (const fs::filesystem_error& error) {
      user_error(error.path1().string(), ": cannot be listed: ", error.code().message());
    }
    if (list.images.empty())
      user_error(settings_.path,
                 ": holds no images (.jpg, .png, .webp, .gif, .bmp, .tif, ...), neither in folders named after classes nor directly");
  }

  void tell_left_out() const {
    std::int64_t total = 0;
    std::vector<std::string> kinds;
    for (const auto& [extension, count] : left_out_) {
      total += count;
      if (kinds.size() < 5) kinds.push_back(concat(with_thousands(count), " ", extension.empty() ? "without extension" : extension));
    }
    if (total > 0)
      log::info(settings_.path, ": ", with_thousands(total), total == 1 ? " file is" : " files are", " not images and ",
                total == 1 ? "is" : "are", " left out: ", join_names(kinds), kinds.size() < left_out_.size() ? " and others" : "");
  }

  bool are_classes(const std::vector<std::string>& folders) const {
    if (settings_.classes) return *settings_.classes;
    const bool shards = std::ranges::all_of(folders, is_all_digits) &&
                        std::ranges::any_of(folders, [&](const std::string& folder) { return is_img2dataset_shard(root_ / folder); });
    if (shards)
      log::info(settings_.path, ": its folders ", folders.front(), folders.size() > 1 ? " to " + folders.back() : "",
                " are img2dataset's, not classes (set `classes: true` to use them as classes)");
    return !shards;
  }

  void add_classes(const std::vector<std::string>& folders) {
    for (const std::string& folder : folders) {
      const std::size_t before = list.images.size();
      add_images(root_ / folder, std::ssize(list.class_names));
      if (list.images.size() == before) log::warning(settings_.path, ": class folder ", folder, " holds no images");
      list.class_names.push_back(folder);
    }
  }

  // Returns whether an entry is a link to one of the folders that contain the link. Following such a link would never end. Logs a warning
  // once for each such link.
  bool leads_back(const fs::directory_entry& entry) {
    if (!entry.is_symlink() || !entry.is_directory()) return false;
    const fs::path target = fs::canonical(entry.path());
    const auto holds = [&](const fs::path& folder) { return std::ranges::mismatch(target, fs::canonical(folder)).in1 == target.end(); };
    fs::path above = root_;
    bool back = holds(above);
    for (const fs::path& folder : entry.path().lexically_relative(root_).parent_path()) {
      above /= folder;
      back = back || holds(above);
    }
    if (!back) return false;
    if (links_back_.insert((fs::canonical(above) / entry.path().filename()).string()).second)
      log::warning(entry.path().string(), ": links to ", target.string(), ", a folder that contains it: it is not followed");
    return true;
  }

  // Adds the images in a folder and, if `deep`, in the folders below it.
  void add_images(const fs::path& folder, std::int64_t label, bool deep = true) {
    std::vector<std::string> found;  // names relative to the folder
    std::unordered_map<std::string, TextFiles> beside;  // by the path without its extension
    fs::recursive_directory_iterator entries(folder, fs::directory_options::follow_directory_symlink);
    for (; entries != fs::recursive_directory_iterator(); ++entries) {
      const fs::directory_entry& entry = *entries;
      const bool hidden = entry.path().filename().string().starts_with('.');
      if (!deep || leads_back(entry) || (hidden && entry.is_directory())) entries.disable_recursion_pending();
      if (hidden || !entry.is_regular_file()) continue;
      const fs::path relative = entry.path().lexically_relative(root_);
      if (is_text(relative)) {
        const std::string extension = extension_of(relative);
        // If there are several files of one name, the one whose extension is in lower case is used.
        TextFiles& files = beside[fs::path(relative).replace_extension().generic_string()];
        std::string& file = extension == ".txt" ? files.text : files.json;
        if (file.empty() || relative.extension() == extension) file = (root_ / relative).string();
      } else if (is_image(relative)) {
        found.push_back(relative.generic_string());
      } else if (entry.path().extension() != ".tsv") {
        ++left_out_[entry.path().extension().string()];
      }
    }
    std::ranges::sort(found);
    for (const std::string& name : found) {
      ListedImage& image = list.images.emplace_back();
      image.name = name;
      image.label = label;
      texts.push_back(beside[fs::path(name).replace_extension().generic_string()]);
    }
  }

  void find_texts(const config::FilePath& folder) {
    config::require(folder);
    std::size_t found = 0;
    std::error_code ignored;
    const auto path_of = [&](std::size_t i, const char* extension) {
      return (fs::path(folder.name) / list.images[i].name).replace_extension(extension).string();
    };
    for (std::size_t i = 0; i < texts.size(); ++i) {
      texts[i].text.clear();
      for (const char* extension : {".TXT", ".txt"})
        if (const std::string path = path_of(i, extension); fs::is_regular_file(path, ignored)) texts[i].text = path;
      found += texts[i].text.empty() ? 0 : 1;
    }
    if (found == 0)
      user_error(folder, ": has no text for any image of ", settings_.path, ": expected files such as ",
                 fs::path(path_of(0, ".txt")).filename().string());
    if (found < texts.size())
      log::warning(folder, ": ", texts.size() - found, " of ", texts.size(), " images have no text there");
  }

  void read_captions() {
    if (settings_.captions) config::require(*settings_.captions);
    const std::string path = settings_.captions.value_or((root_ / "captions.tsv").string());
    std::error_code ignored;
    if (!settings_.captions && !fs::exists(path, ignored)) return;
    list.tables = {path};
    std::unordered_map<std::string, ListedImage*> known;
    for (ListedImage& image : list.images) known[image.name] = &image;
    std::size_t used = 0, unknown = 0;
    std::string first_unknown;
    for_each_line(io::read_data_file(path), [&](const std::string& line, std::int64_t line_number) {
      const std::size_t tab = line.find('\t');
      const bool no_tab = tab == std::string::npos;
      const std::string name = fs::path(line.substr(0, tab)).lexically_normal().generic_string();
      const auto image = known.find(name);
      if (!no_tab && image != known.end()) {
        add_caption(std::string_view(line).substr(tab + 1), image->second->captions);
        ++used;
      } else if (no_tab || line_number > 1) {  // the first line may be a header
        if (unknown++ == 0) first_unknown = concat("line ", line_number, ": ", no_tab ? "expected IMAGE<tab>CAPTION, got no tab" : name);
      }
    });
    if (used == 0)
      user_error(path, ": names no image of ", settings_.path, first_unknown.empty() ? "" : " (" + first_unknown + ")",
                 ": expected names relative to the folder, such as ", list.images[0].name);
    if (unknown > 0) log::warning(path, ": ", unknown, " lines name no image of the folder (first: ", first_unknown, ")");
  }

  const ImageFolderSettings& settings_;
  const fs::path root_;
  std::set<std::string> links_back_;
  std::map<std::string, std::int64_t> left_out_;  // files that are neither images nor texts, counted by extension
};

/// The texts of an image as a row.
struct FolderRow : Row {
  nlohmann::json value(const std::string& name) const override {
    if (name == "txt") return lines;
    return side_fields.is_object() ? side_fields.value(name.substr(name.find('.') + 1), nlohmann::json()) : nlohmann::json();
  }
  std::optional<std::string> file(const std::string&, const char*) const override { return std::nullopt; }
  const nlohmann::json* side() const override { return side_fields.is_object() ? &side_fields : nullptr; }

  nlohmann::json lines, side_fields;
};

class ImageFolder : public ListedImages {
 public:
  ImageFolder(const ImageFolderSettings& settings, FolderReader read)
      : ListedImages(std::move(read.list)),
        settings_(settings),
        texts_(std::move(read.texts)),
        mapper_(rows(), {.side_prefix = "json.", .is_list = true}) {}

  std::string describe() const override {
    return concat("image_folder ", settings_.path, ", ", with_thousands(size()), " images",
                  class_names().empty() ? "" : concat(" of ", class_names().size(), " classes"));
  }
  std::vector<std::string> captions(std::int64_t index) const override {
    Sample sample;
    read_texts(index, sample);
    return std::move(sample.captions);
  }
  bool lacks_caption(std::int64_t /*index*/) const override { return false; }
  std::vector<std::uint64_t> image_ids() const override { return {}; }

  Sample get(std::int64_t index) const override {
    Sample sample = ListedImages::get(index);
    sample.captions.clear();
    return read_keyed(sample.key, [&] {
      read_texts(index, sample);
      return std::move(sample);
    });
  }

 private:
  static RowSettings rows() {
    RowSettings out;
    out.caption_keys = {"txt", "json.caption", "json.captions"};
    return out;
  }

  // Sets the captions, and the contents of a .json file next to the image.
  void read_texts(std::int64_t index, Sample& sample) const {
    const TextFiles& files = texts_.at(static_cast<std::size_t>(index));
    FolderRow row;
    if (!files.text.empty()) row.lines = split(read_sample_text(files.text), '\n');
    if (!files.json.empty()) row.side_fields = parse_python_json(read_sample_text(files.json));
    if (row.side_fields.is_discarded() && !reported_bad_json_.exchange(true))
      log::warning(files.json, ": is not JSON: this file and others like it are skipped");
    mapper_.read_fields(row, sample);
    const ListedImage& image = listed(index);
    if (!image.captions.empty()) sample.captions = image.captions;
    if (!sample.captions.empty() || !files.text.empty() || image.label < 0 || settings_.template_.empty()) return;
    std::string name = class_names()[static_cast<std::size_t>(image.label)];
    std::ranges::replace(name, '_', ' ');
    sample.captions = {fill_template(settings_.template_, name)};
  }

  const ImageFolderSettings settings_;
  const std::vector<TextFiles> texts_;
  const RowMapper mapper_;
  mutable std::atomic<bool> reported_bad_json_ = false;
};

}  // namespace

std::shared_ptr<IndexedSource> make_image_folder(const ImageFolderSettings& settings) {
  return std::make_shared<ImageFolder>(settings, FolderReader(settings));
}

}  // namespace tessera
