#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <sstream>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/host.h>
#include <tessera/base/text.h>
#include <tessera/config/shipped.h>

namespace tessera::config {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "configs/";
constexpr std::string_view kEnding = ".yaml";

// Returns the sorted names of the YAML files in a folder below `shipped`, without their ending: shapes_sparc, suites/shapes.
std::vector<std::string> names_in(const fs::path& shipped, const char* below) {
  std::vector<std::string> names;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(shipped / below, missing))
    if (entry.path().extension() == kEnding) names.push_back((below / entry.path().stem()).string());
  std::sort(names.begin(), names.end());
  return names;
}

// Returns the end of an error message: the nearest shipped name, or how to list all of them.
std::string hint(std::string name, const fs::path& shipped) {
  if (name.ends_with(kEnding)) name.resize(name.size() - kEnding.size());
  std::vector<std::string> names = names_in(shipped, "");
  for (std::string& suite : names_in(shipped, "suites")) names.push_back(std::move(suite));
  const std::string nearest = nearest_name(name, names);
  return nearest.empty() ? "; trainer --list-configs lists all" : ": did you mean " + nearest + "?";
}

}  // namespace

std::string shipped_folder() {
  std::vector<fs::path> places;
  std::error_code unknown;
  // The folder of the program: PREFIX/bin/trainer or PREFIX/libexec/tessera/trainer.
  const fs::path folder = fs::read_symlink("/proc/self/exe", unknown).parent_path();
  // In a Python process, the folder of the library PREFIX/lib/libtessera.so.
  const fs::path of_library = code_folder();
  for (const fs::path& prefix : {folder.parent_path(), folder.parent_path().parent_path(), of_library.parent_path()})
    places.push_back(prefix / "share/tessera/configs");
  places.emplace_back(TESSERA_SOURCE_CONFIGS);
  places.emplace_back(TESSERA_INSTALLED_CONFIGS);
  for (const fs::path& place : places)
    if (fs::is_directory(place, unknown)) return place.string();
  return {};
}

std::string find_configuration(const std::string& name, const std::string& shipped) {
  const std::string below = name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
  std::error_code missing;
  for (const fs::path& path : {fs::path(name), fs::path(shipped) / below})
    for (const fs::path& file : {path, fs::path(path).concat(kEnding)})
      if (fs::exists(file, missing) && !fs::is_directory(file, missing)) return file.string();
  if (fs::is_directory(name, missing)) user_error(name, ": is a folder, expected a YAML file");
  const std::string here = fs::path(name).is_absolute() ? "" : " in the working folder";
  const std::string there = here.empty() || shipped.empty() ? "" : " or in " + shipped;
  user_error(name, ": no such configuration file", here, there, hint(below, shipped));
}

std::string list_configurations(const std::string& shipped) {
  const std::vector<std::string> names = names_in(shipped, "");
  if (names.empty())
    user_error("cannot find the configurations that ship with Tessera; cmake --install puts them in share/tessera/configs");
  // Without a limit, one long name would push the descriptions of all others to the right.
  constexpr std::size_t kWidestColumn = 24;
  std::size_t width = 0;
  for (const std::string& name : names) width = std::max(width, std::min(name.size(), kWidestColumn));
  std::ostringstream out;
  out << "in " << shipped << ", for --config:\n";
  for (const std::string& name : names) {
    std::ifstream file(fs::path(shipped) / (name + std::string(kEnding)));
    std::string line;
    std::getline(file, line);
    out << std::left << std::setw(static_cast<int>(width)) << name << "  " << line.substr(std::min(line.size(), line.find_first_not_of("# ")))
        << "\n";
  }
  return out.str();
}

}  // namespace tessera::config
