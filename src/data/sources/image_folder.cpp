#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <set>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>

#include "src/data/formats/annotations.h"
#include "src/data/formats/captions.h"
#include "src/data/formats/image_endings.h"
#include "src/data/formats/sample_file.h"
#include "src/data/formats/templates.h"
#include "src/data/sources/image_folder.h"
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
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension;
}

bool is_picture(const fs::path& path) {
  const std::string extension = extension_of(path);
  return std::ranges::any_of(kImageEndings, [&](const char* ending) { return extension == std::string(".") + ending; });
}

bool is_all_digits(const std::string& name) {
  return !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
}

/// Returns whether a folder is a shard written by img2dataset. The name of such a folder is a number. In addition, a statistics file lies
/// next to the folder, or the folder contains .txt or .json files.
bool is_img2dataset_shard(const fs::path& folder) {
  if (!is_all_digits(folder.filename().string())) return false;
  if (fs::exists(folder.string() + "_stats.json")) return true;
  return std::any_of(fs::directory_iterator(folder), fs::directory_iterator(), [](const fs::directory_entry& entry) {
    const std::string extension = extension_of(entry.path());
    return extension == ".txt" || extension == ".json";
  });
}

class ImageFolder : public IndexedSource {
 public:
  explicit ImageFolder(const ImageFolderSettings& settings) : settings_(settings), root_(settings.path.name) {
    std::error_code ignored;
    if (settings.path.empty()) user_error("image_folder: path is not set; expected a folder of images");
    config::require(settings.path);
    if (!fs::is_directory(root_, ignored)) user_error(settings.path, ": expected a folder, got a file");
    list_pictures();
    tell_left_out();
    if (settings.texts) find_texts(*settings.texts);
    read_captions();
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(pictures_.size()); }
  std::int64_t data_file_count() const override { return size() + (captions_file_.empty() ? 0 : 1); }
  DataFile data_file(std::int64_t index) const override {
    if (!captions_file_.empty() && index-- == 0) return {fs::path(captions_file_).filename().string(), captions_file_};
    const std::string& name = pictures_.at(static_cast<std::size_t>(index)).name;
    return {name, (root_ / name).string()};
  }
  std::vector<std::string> class_names() const override { return classes_; }
  std::string describe() const override {
    return concat("image_folder ", settings_.path, ", ", with_thousands(size()), " images",
                  classes_.empty() ? "" : concat(" of ", classes_.size(), " classes"));
  }

  std::vector<std::string> captions(std::int64_t index) const override {
    return captions_of(pictures_.at(static_cast<std::size_t>(index)));
  }
  std::string name_of(std::int64_t index) const override {
    return (root_ / pictures_.at(static_cast<std::size_t>(index)).name).string();
  }

  Sample get(std::int64_t index) const override {
    const Picture& picture = pictures_.at(static_cast<std::size_t>(index));
    return read_keyed(picture.name, [&] { return read(picture); });
  }

 private:
  struct Picture {
    std::string name;  // relative to the folder
    std::int64_t label = -1;
    bool has_text = false;
    bool has_json = false;
  };

  Sample read(const Picture& picture) const {
    Sample sample;
    sample.key = picture.name;
    sample.label = picture.label;
    sample.encoded = read_sample_file((root_ / picture.name).string(), "unreadable");
    if (sample.encoded.empty())
      throw SampleError("empty_image", concat((root_ / picture.name).string(), ": the image has 0 bytes"));
    add_texts(picture, sample);
    return sample;
  }

  std::vector<std::string> captions_of(const Picture& picture) const {
    Sample sample;
    add_texts(picture, sample);
    return sample.captions;
  }

  /// Adds the captions, and the contents of a .json file next to the image.
  void add_texts(const Picture& picture, Sample& sample) const {
    if (picture.has_text) sample.captions = lines_of(text_path(picture));
    if (picture.has_json) read_json(written(root_, picture, ".json"), sample);
    const auto listed = captions_.find(picture.name);
    if (listed != captions_.end()) sample.captions = listed->second;
    if (sample.captions.empty() && !picture.has_text && picture.label >= 0 && !settings_.template_.empty())
      sample.captions = {from_template(picture.label)};
  }

  // Returns the path of the file with the picture's name and this extension, which may be in upper case.
  std::string written(const fs::path& folder, const Picture& picture, const char* extension) const {
    std::string path = fs::path(folder / picture.name).replace_extension(extension).string();
    const auto other = other_cases_.find(path);
    return other == other_cases_.end() ? path : other->second;
  }

  void read_json(const std::string& path, Sample& sample) const {
    const std::string text = read_sample_text(path);
    if (read_annotations(std::string_view(text), {"caption", "captions"}, sample)) return;
    if (!told_bad_json_.exchange(true)) log::warning(path, ": is not JSON: this file and others like it are skipped");
  }

  std::string text_path(const Picture& picture) const {
    return written(settings_.texts ? fs::path(settings_.texts->name) : root_, picture, ".txt");
  }

  void find_texts(const config::FilePath& folder) {
    config::require(folder);
    std::size_t found = 0;
    std::error_code ignored;
    for (Picture& picture : pictures_) {
      const std::string path = text_path(picture);
      picture.has_text = fs::is_regular_file(path, ignored);
      const std::string upper = fs::path(path).replace_extension(".TXT").string();
      if (!picture.has_text && fs::is_regular_file(upper, ignored)) {
        picture.has_text = true;
        other_cases_[path] = upper;
      }
      if (picture.has_text) ++found;
    }
    if (found == 0)
      user_error(folder, ": has no text for any image of ", settings_.path, ": expected files such as ",
                 fs::path(text_path(pictures_[0])).filename().string());
    if (found < pictures_.size())
      log::warning(folder, ": ", pictures_.size() - found, " of ", pictures_.size(), " images have no text there");
  }

  void list_pictures() {
    std::vector<std::string> folders;
    std::int64_t direct = 0;
    try {
      for (const auto& entry : fs::directory_iterator(root_)) {
        if (entry.path().filename().string().starts_with('.')) continue;
        if (entry.is_directory()) {
          if (!leads_back(entry)) folders.push_back(entry.path().filename().string());
        } else if (is_picture(entry.path()) && entry.is_regular_file()) {
          ++direct;
        }
      }
      std::sort(folders.begin(), folders.end());
      if (are_classes(folders))
        add_classes(folders);
      else
        add_pictures(all_below(root_), -1);
      if (pictures_.empty()) {
        classes_.clear();
        left_out_.clear();
        add_pictures(fs::directory_iterator(root_), -1);
      } else if (direct > 0 && !classes_.empty()) {
        log::warning(settings_.path, ": ", with_thousands(direct), direct == 1 ? " image is" : " images are",
                     " directly in it, next to class folders that hold images, and ", direct == 1 ? "is" : "are",
                     " not used");
      }
    } catch (const fs::filesystem_error& error) {
      user_error(error.path1().string(), ": cannot be listed: ", error.code().message());
    }
    if (pictures_.empty())
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
    const bool shards = std::all_of(folders.begin(), folders.end(), is_all_digits) &&
                        std::any_of(folders.begin(), folders.end(),
                                    [&](const std::string& folder) { return is_img2dataset_shard(root_ / folder); });
    if (shards)
      log::info(settings_.path, ": its folders ", folders.front(), folders.size() > 1 ? " to " + folders.back() : "",
                " are img2dataset's, not classes (set `classes: true` to use them as classes)");
    return !shards;
  }

  static fs::recursive_directory_iterator all_below(const fs::path& folder) {
    return fs::recursive_directory_iterator(folder, fs::directory_options::follow_directory_symlink);
  }

  void add_classes(const std::vector<std::string>& folders) {
    for (const std::string& folder : folders) {
      const std::size_t before = pictures_.size();
      add_pictures(all_below(root_ / folder), static_cast<std::int64_t>(classes_.size()));
      if (pictures_.size() == before) log::warning(settings_.path, ": class folder ", folder, " holds no images");
      classes_.push_back(folder);
    }
  }

  // Returns whether an entry is a link to one of the folders that contain the link. Following such a link would never end. Logs a warning
  // once for each such link.
  bool leads_back(const fs::directory_entry& entry) {
    if (!entry.is_symlink() || !entry.is_directory()) return false;
    const fs::path target = fs::canonical(entry.path());
    const auto holds = [&](const fs::path& folder) {
      const fs::path real = fs::canonical(folder);
      return std::mismatch(target.begin(), target.end(), real.begin(), real.end()).first == target.end();
    };
    fs::path above = root_;
    bool back = holds(above);
    for (const fs::path& folder : entry.path().lexically_relative(root_).parent_path()) {
      above /= folder;
      back = back || holds(above);
    }
    if (!back) return false;
    if (links_back_.insert((fs::canonical(above) / entry.path().filename()).string()).second)
      log::warning(entry.path().string(), ": links to ", target.string(),
                   ", a folder that contains it: it is not followed");
    return true;
  }

  template <class Iterator>
  void add_pictures(Iterator entries, std::int64_t label) {
    const std::size_t begin = pictures_.size();
    std::unordered_set<std::string> texts, jsons;
    for (Iterator end; entries != end; ++entries) {
      const fs::directory_entry& entry = *entries;
      if constexpr (std::is_same_v<Iterator, fs::recursive_directory_iterator>)
        if (leads_back(entry) || (entry.path().filename().string().starts_with('.') && entry.is_directory())) {
          entries.disable_recursion_pending();
          continue;
        }
      const fs::path relative = entry.path().lexically_relative(root_);
      if (entry.path().filename().string().starts_with('.') || !entry.is_regular_file()) continue;
      const std::string extension = extension_of(relative);
      if (extension == ".txt" || extension == ".json") {
        auto& stems = extension == ".txt" ? texts : jsons;
        note_case(relative, extension, stems.insert(fs::path(relative).replace_extension().generic_string()).second);
      } else if (is_picture(relative)) {
        pictures_.push_back({.name = relative.generic_string(), .label = label});
      } else if (entry.path().extension() != ".tsv")
        ++left_out_[entry.path().extension().string()];
    }
    for (std::size_t i = begin; i < pictures_.size(); ++i) {
      const std::string name = fs::path(pictures_[i].name).replace_extension().generic_string();
      pictures_[i].has_text = texts.contains(name);
      pictures_[i].has_json = jsons.contains(name);
    }
    std::sort(pictures_.begin() + static_cast<std::ptrdiff_t>(begin), pictures_.end(),
              [](const Picture& a, const Picture& b) { return a.name < b.name; });
  }

  // Remembers how a file's extension is written. If there are several files of one name, the one in lower case is used.
  void note_case(const fs::path& relative, const std::string& extension, bool is_new) {
    const std::string lower = (root_ / fs::path(relative).replace_extension(extension)).string();
    if (relative.extension() == extension)
      other_cases_.erase(lower);
    else if (is_new)
      other_cases_[lower] = (root_ / relative).string();
  }

  void read_captions() {
    if (settings_.captions) config::require(*settings_.captions);
    const std::string path = settings_.captions.value_or((root_ / "captions.tsv").string());
    std::error_code ignored;
    if (!settings_.captions && !fs::exists(path, ignored)) return;
    captions_file_ = path;
    std::unordered_set<std::string> known;
    for (const Picture& picture : pictures_) known.insert(picture.name);
    std::size_t line_number = 0, used = 0, unknown = 0;
    std::string first_unknown;
    for (const std::string& line : split(io::read_data_file(path), '\n')) {
      ++line_number;
      if (strip(line).empty()) continue;
      const std::size_t tab = line.find('\t');
      const bool no_tab = tab == std::string::npos;
      const std::string name = fs::path(line.substr(0, tab)).lexically_normal().generic_string();
      if (!no_tab && known.contains(name)) {
        add_caption(std::string_view(line).substr(tab + 1), captions_[name]);
        ++used;
      } else if (no_tab || line_number > 1) {  // the first line may be a header
        ++unknown;
        if (first_unknown.empty())
          first_unknown = concat("line ", line_number, ": ", no_tab ? "expected IMAGE<tab>CAPTION, got no tab" : name);
      }
    }
    if (used == 0)
      user_error(path, ": names no image of ", settings_.path,
                 first_unknown.empty() ? "" : " (" + first_unknown + ")",
                 ": expected names relative to the folder, such as ", pictures_[0].name);
    if (unknown > 0)
      log::warning(path, ": ", unknown, " lines name no image of the folder (first: ", first_unknown, ")");
  }

  static std::vector<std::string> lines_of(const std::string& path) {
    std::vector<std::string> lines;
    for (const std::string& line : split(read_sample_text(path), '\n')) add_caption(line, lines);
    return lines;
  }

  std::string from_template(std::int64_t label) const {
    std::string name = classes_[static_cast<std::size_t>(label)];
    std::replace(name.begin(), name.end(), '_', ' ');
    return fill_template(settings_.template_, name);
  }

  ImageFolderSettings settings_;
  fs::path root_;
  std::string captions_file_;  // empty: none
  std::vector<Picture> pictures_;
  std::vector<std::string> classes_;
  // path of a text with its extension in lower case -> the path as it is written, if they differ
  std::unordered_map<std::string, std::string> other_cases_;
  std::set<std::string> links_back_;
  std::map<std::string, std::int64_t> left_out_;  // files that are neither images nor texts, counted by extension
  mutable std::atomic<bool> told_bad_json_ = false;
  std::unordered_map<std::string, std::vector<std::string>> captions_;
};

}  // namespace

std::shared_ptr<IndexedSource> make_image_folder(const ImageFolderSettings& settings) {
  return std::make_shared<ImageFolder>(settings);
}

}  // namespace tessera
