#include <algorithm>
#include <filesystem>
#include <numeric>

#include "src/base/printable.h"
#include "src/data/formats/data_files.h"
#include "src/data/sources/listed_images.h"
#include "src/data/sources/benchmarks.h"
#include "src/io/stand_in.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::uint8_t kNoClass = 255;  // the value that means "no class" in Sample::mask

/// Returns the class for each of the 256 possible values of a mask's pixels.
std::vector<std::uint8_t> classes_of_values(const SegmentationFolderSettings& s) {
  std::vector<std::uint8_t> classes(256, kNoClass);
  if (s.values.empty()) std::iota(classes.begin() + (s.reduce_zero_label ? 1 : 0), classes.end(), std::uint8_t{0});
  for (std::size_t i = 0; i < s.values.size(); ++i) classes[static_cast<std::size_t>(s.values[i])] = static_cast<std::uint8_t>(i);
  classes[static_cast<std::size_t>(s.ignored_value)] = kNoClass;
  return classes;
}

void require_folder(const SegmentationFolderSettings& s, const std::string& name, const char* setting) {
  const fs::path folder = fs::path(s.path.name) / name;
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored))
    user_error("segmentation_folder: there is no folder ", printable(folder.string()), ": set `path` to the data set's folder, and `", setting,
               "` to the folder within it");
}

std::vector<std::string> listed_names(const std::string& path) {
  std::vector<std::string> names;
  for_each_line(io::read_data_file(path), [&](const std::string& line, std::int64_t number) {
    const std::string name(strip(line));
    if (name.find_first_of(" \t") != std::string::npos)
      user_error(path, ":", number, ": expected the name of one sample, without suffix, got \"", printable(name, 60), "\"");
    names.push_back(name);
  });
  if (names.empty()) user_error(path, ": names no sample");
  return names;
}

/// Returns the names of all images below the folder, sorted.
std::vector<std::string> names_in(const fs::path& folder, const std::string& suffix) {
  std::vector<std::string> names;
  try {
    for (const auto& entry : fs::recursive_directory_iterator(folder, fs::directory_options::follow_directory_symlink)) {
      const std::string name = entry.path().lexically_relative(folder).generic_string();
      if (entry.path().filename().string().starts_with('.') || !name.ends_with(suffix)) continue;
      if (entry.is_regular_file()) names.push_back(name.substr(0, name.size() - suffix.size()));
    }
  } catch (const fs::filesystem_error& error) {
    user_error(error.path1().string(), ": cannot be listed: ", error.code().message());
  }
  if (names.empty())
    user_error("segmentation_folder: no file in ", printable(folder.string()), " ends in ", suffix, ": set picture_suffix");
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> class_names_of(const SegmentationFolderSettings& s) {
  if (!s.classes) return {};
  const std::vector<std::string> names = read_class_names(*s.classes);
  const auto count = std::ssize(names);
  if (!s.values.empty() && std::ssize(s.values) != count)
    user_error(*s.classes, ": names ", count, " classes, but segmentation_folder.values lists ", s.values.size(), ": give one value for each");
  if (s.background_class >= count)
    user_error("segmentation_folder.background_class is ", s.background_class, ", but ", *s.classes, " names ", count, " classes (0 to ",
               count - 1, ")");
  return names;
}

}  // namespace

std::optional<config::Problem> validate(const SegmentationFolderSettings& s) {
  if (s.reduce_zero_label && !s.values.empty())
    return config::Problem{"reduce_zero_label", "conflicts with `values`, which also maps values to classes: set only one of the two"};
  std::vector<std::int64_t> sorted = s.values;
  std::sort(sorted.begin(), sorted.end());
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
    return config::Problem{"values", concat(*twice, " is listed twice: each value belongs to one class")};
  if (std::ssize(s.values) >= kNoClass) return config::Problem{"values", "more than 254 classes do not fit a mask"};
  return std::nullopt;
}

std::shared_ptr<IndexedSource> make_segmentation_folder(const SegmentationFolderSettings& settings) {
  config::require(settings.path);
  require_folder(settings, settings.images, "pictures");
  require_folder(settings, settings.masks, "masks");
  const fs::path root(settings.path.name);
  ImageList list{concat("segmentation_folder ", settings.path, " ", settings.list.empty() ? settings.images : settings.list),
                   settings.path.name};
  if (!settings.list.empty()) list.tables.push_back((root / settings.list).string());
  for (const std::string& name :
       settings.list.empty() ? names_in(root / settings.images, settings.image_suffix) : listed_names(list.tables[0])) {
    ListedImage& image = list.images.emplace_back();
    image.name = (fs::path(settings.images) / (name + settings.image_suffix)).generic_string();
    image.detail().mask_file = (fs::path(settings.masks) / (name + settings.mask_suffix)).generic_string();
  }
  list.class_names = class_names_of(settings);
  list.background_class = settings.background_class;
  list.mask_classes = classes_of_values(settings);
  return std::make_shared<ListedImages>(std::move(list));
}

}  // namespace tessera
