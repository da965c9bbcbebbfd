#include <algorithm>
#include <filesystem>
#include <unordered_map>
#include <unordered_set>

#include "src/data/sample_file.h"
#include "src/data/templates.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/data/image_folder.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

bool is_picture(const fs::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png" || extension == ".webp";
}

class ImageFolder : public Source {
 public:
  explicit ImageFolder(const ImageFolderSettings& settings) : settings_(settings), root_(settings.path) {
    std::error_code ignored;
    if (settings.path.empty()) user_error("image_folder: path is not set; expected a folder of pictures");
    if (!fs::is_directory(root_, ignored))
      user_error(settings.path, fs::exists(root_, ignored) ? ": expected a folder, got a file" : ": no such folder");
    list_pictures();
    read_captions();
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(pictures_.size()); }
  std::vector<std::string> class_names() const override { return classes_; }
  std::string describe() const override {
    return concat("image_folder ", settings_.path, ", ", with_thousands(size()), " pictures",
                  classes_.empty() ? "" : concat(" of ", classes_.size(), " classes"));
  }

  std::int64_t caption_count(std::int64_t index) const override {
    return std::ssize(captions_of(pictures_.at(static_cast<std::size_t>(index))));
  }
  std::string name_of(std::int64_t index) const override {
    return (root_ / pictures_.at(static_cast<std::size_t>(index)).name).string();
  }

  Sample get(std::int64_t index) const override {
    const Picture& picture = pictures_.at(static_cast<std::size_t>(index));
    Sample sample;
    sample.key = picture.name;
    sample.label = picture.label;
    sample.encoded = read_sample_file((root_ / picture.name).string(), "unreadable");
    if (sample.encoded.empty())
      throw SampleError("empty_image", concat((root_ / picture.name).string(), ": the image has 0 bytes"));
    sample.captions = captions_of(picture);
    return sample;
  }

 private:
  struct Picture {
    std::string name;  // relative to the folder
    std::int64_t label = -1;
    bool has_text = false;
  };

  std::vector<std::string> captions_of(const Picture& picture) const {
    const auto listed = captions_.find(picture.name);
    if (listed != captions_.end()) return listed->second;
    if (picture.has_text) return lines_of(fs::path(root_ / picture.name).replace_extension(".txt").string());
    if (picture.label >= 0 && !settings_.template_.empty()) return {from_template(picture.label)};
    return {};
  }

  void list_pictures() {
    std::vector<std::string> folders;
    try {
      for (const auto& entry : fs::directory_iterator(root_))
        if (entry.is_directory() && !entry.path().filename().string().starts_with('.'))
          folders.push_back(entry.path().filename().string());
      std::sort(folders.begin(), folders.end());
      for (const std::string& folder : folders) {
        const std::size_t before = pictures_.size();
        add_pictures(fs::recursive_directory_iterator(root_ / folder, fs::directory_options::follow_directory_symlink),
                     static_cast<std::int64_t>(classes_.size()));
        if (pictures_.size() == before) log::warning(settings_.path, ": class folder ", folder, " holds no pictures");
        classes_.push_back(folder);
      }
      if (pictures_.empty()) {
        classes_.clear();
        add_pictures(fs::directory_iterator(root_), -1);
      }
    } catch (const fs::filesystem_error& error) {
      user_error(error.path1().string(), ": cannot be listed: ", error.code().message());
    }
    if (pictures_.empty())
      user_error(settings_.path,
                 ": holds no pictures (.jpg, .jpeg, .png, .webp), neither in folders named after classes nor directly");
  }

  template <class Iterator>
  void add_pictures(Iterator entries, std::int64_t label) {
    const std::size_t begin = pictures_.size();
    std::unordered_set<std::string> texts;
    for (const auto& entry : entries) {
      const fs::path relative = entry.path().lexically_relative(root_);
      if (entry.path().filename().string().starts_with('.') || !entry.is_regular_file()) continue;
      if (entry.path().extension() == ".txt")
        texts.insert(fs::path(relative).replace_extension().generic_string());
      else if (is_picture(relative))
        pictures_.push_back({relative.generic_string(), label, false});
    }
    for (std::size_t i = begin; i < pictures_.size(); ++i)
      pictures_[i].has_text = texts.contains(fs::path(pictures_[i].name).replace_extension().generic_string());
    std::sort(pictures_.begin() + static_cast<std::ptrdiff_t>(begin), pictures_.end(),
              [](const Picture& a, const Picture& b) { return a.name < b.name; });
  }

  void read_captions() {
    const std::string path = settings_.captions.value_or((root_ / "captions.tsv").string());
    std::error_code ignored;
    if (!settings_.captions && !fs::exists(path, ignored)) return;
    std::unordered_set<std::string> known;
    for (const Picture& picture : pictures_) known.insert(picture.name);
    std::size_t line_number = 0, used = 0, unknown = 0;
    std::string first_unknown;
    for (const std::string& line : split(io::read_file(path), '\n')) {
      ++line_number;
      if (strip(line).empty()) continue;
      const std::size_t tab = line.find('\t');
      if (tab == std::string::npos) user_error(path, ":", line_number, ": expected PICTURE<tab>CAPTION, got no tab");
      const std::string name = fs::path(line.substr(0, tab)).lexically_normal().generic_string();
      if (known.contains(name)) {
        captions_[name].emplace_back(strip(line.substr(tab + 1)));
        ++used;
      } else if (line_number > 1) {  // the first line may be a header
        ++unknown;
        if (first_unknown.empty()) first_unknown = concat("line ", line_number, ": ", name);
      }
    }
    if (used == 0)
      user_error(path, ": names no picture of ", settings_.path,
                 first_unknown.empty() ? "" : " (" + first_unknown + ")",
                 ": expected names relative to the folder, such as ", pictures_[0].name);
    if (unknown > 0)
      log::warning(path, ": ", unknown, " lines name no picture of the folder (first: ", first_unknown, ")");
  }

  static std::vector<std::string> lines_of(const std::string& path) {
    std::vector<std::string> lines;
    for (const std::string& line : split(read_sample_file(path, "unreadable"), '\n'))
      if (!strip(line).empty()) lines.emplace_back(strip(line));
    return lines;
  }

  std::string from_template(std::int64_t label) const {
    std::string name = classes_[static_cast<std::size_t>(label)];
    std::replace(name.begin(), name.end(), '_', ' ');
    return fill_template(settings_.template_, name);
  }

  ImageFolderSettings settings_;
  fs::path root_;
  std::vector<Picture> pictures_;
  std::vector<std::string> classes_;
  std::unordered_map<std::string, std::vector<std::string>> captions_;
};

}  // namespace

std::shared_ptr<Source> make_image_folder(const ImageFolderSettings& settings) {
  return std::make_shared<ImageFolder>(settings);
}

}  // namespace tessera
