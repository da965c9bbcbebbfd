#include "src/data/sources/find_picture.h"

#include <filesystem>
#include <vector>

#include "src/data/formats/image_endings.h"

namespace tessera {

std::string find_picture(const std::string& folder, const std::string& name) {
  const std::string last = std::filesystem::path(name).filename().string();
  std::vector<std::string> candidates = {name, last};
  if (!std::filesystem::path(last).has_extension()) {
    const bool number = !last.empty() && last.find_first_not_of("0123456789") == std::string::npos;
    std::vector<std::string> stems = {name, last};
    if (number && last.size() < 12) stems.push_back(std::string(12 - last.size(), '0') + last);
    candidates.clear();
    for (const std::string& stem : stems)
      for (const char* ending : kImageEndings) candidates.push_back(stem + "." + ending);
  }
  std::error_code ignored;
  for (const std::string& candidate : candidates)
    if (std::filesystem::is_regular_file(std::filesystem::path(folder) / candidate, ignored)) return candidate;
  return name;
}

}  // namespace tessera
