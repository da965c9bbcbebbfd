#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <sstream>
#include <vector>

#include "src/base/host.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/shipped.h>

namespace tessera::config {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".yaml";

// Returns the sorted names of the YAML files in a folder below `shipped`, without their ending: sparc/vitb16, suites/shapes.
std::vector<std::string> names_in(const fs::path& shipped, const fs::path& below) {
  std::vector<std::string> names;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(shipped / below, missing))
    if (entry.path().extension() == kEnding) names.push_back((below / entry.path().stem()).string());
  std::sort(names.begin(), names.end());
  return names;
}

// Returns the places of all recipes below `shipped`, sorted. A recipe is a YAML file in any subfolder except parts and suites.
std::vector<std::string> recipes_in(const fs::path& shipped) {
  std::vector<std::string> recipes;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(shipped, missing)) {
    const fs::path folder = entry.path().filename();
    if (folder == "parts" || folder == "suites") continue;
    for (std::string& recipe : names_in(shipped, folder)) recipes.push_back(std::move(recipe));
  }
  std::sort(recipes.begin(), recipes.end());
  return recipes;
}

// Returns the name of the recipe at a place: sparc_vitb16 for sparc/vitb16.
std::string name_of_place(std::string place) {
  std::replace(place.begin(), place.end(), '/', '_');
  return place;
}

// Returns `name` without the folder of the shipped configurations and without the ending .yaml.
std::string plain_name(std::string name, const std::string& shipped) {
  for (const std::string& folder : {std::string("configs"), shipped})
    if (!folder.empty() && name.starts_with(folder + "/")) name.erase(0, folder.size() + 1);
  if (name.ends_with(kEnding)) name.resize(name.size() - kEnding.size());
  return name;
}

// Returns the end of an error message: the nearest shipped name, or how to list all shipped names.
std::string hint(const std::string& name, const fs::path& shipped) {
  const std::vector<std::string> recipes = recipes_in(shipped);
  std::vector<std::string> names = recipes;
  for (const std::string& recipe : recipes) names.push_back(name_of_place(recipe));
  for (std::string& suite : names_in(shipped, "suites")) names.push_back(std::move(suite));
  const std::string nearest = nearest_name(name, names);
  return nearest.empty() ? "; trainer --list-configs lists all" : ": did you mean " + nearest + "?";
}

bool is_file(const fs::path& path) {
  std::error_code missing;
  return fs::exists(path, missing) && !fs::is_directory(path, missing);
}

}  // namespace

std::string shipped_folder() {
  std::vector<fs::path> places;
  std::error_code unknown;
  // The folder of the program. The program is, for example, PREFIX/bin/trainer or PREFIX/libexec/tessera/trainer.
  const fs::path folder = fs::read_symlink("/proc/self/exe", unknown).parent_path();
  // The folder of the program or library that contains this code. In a Python process, the library is PREFIX/lib/libtessera.so.
  const fs::path of_library = code_folder();
  for (const fs::path& prefix : {folder.parent_path(), folder.parent_path().parent_path(), of_library.parent_path()})
    if (!prefix.empty()) places.push_back(prefix / "share/tessera/configs");
  places.emplace_back(TESSERA_SOURCE_CONFIGS);
  places.emplace_back(TESSERA_INSTALLED_CONFIGS);
  for (const fs::path& place : places)
    if (fs::is_directory(place, unknown)) return place.string();
  return {};
}

std::string documentation(const std::string& page) {
  return (fs::path(shipped_folder()).parent_path() / "docs" / page).string();
}

std::string clip_vocabulary_file() {
  fs::path file = fs::path(shipped_folder()) / "vocabularies/clip-bpe/bpe_simple_vocab_16e6.txt.gz";
  if (!is_file(file)) user_error("CLIP's vocabulary is missing from the configurations that ship with Tessera (", file.string(), ")");
  return file.string();
}

std::string find_configuration(const std::string& name, const std::string& shipped) {
  for (const std::string& file : {name, name + std::string(kEnding)})
    if (is_file(file)) return file;
  const std::string plain = plain_name(name, shipped);
  const std::vector<std::string> recipes = recipes_in(shipped);
  const auto recipe =
      std::find_if(recipes.begin(), recipes.end(), [&](const std::string& place) { return name_of_place(place) == plain; });
  const fs::path file = fs::path(shipped) / ((recipe == recipes.end() ? plain : *recipe) + std::string(kEnding));
  if (is_file(file)) return file.string();
  std::error_code missing;
  if (fs::is_directory(name, missing)) user_error(name, ": is a folder, expected a YAML file");
  const std::string here = fs::path(name).is_absolute() ? "" : " in the working folder";
  const std::string there = here.empty() || shipped.empty() ? "" : " or in " + shipped;
  user_error(name, ": no such configuration file", here, there, hint(plain, shipped));
}

std::string configuration_name(const std::string& file, const std::string& shipped) {
  const fs::path path = (fs::current_path() / file).lexically_normal(), folder = path.parent_path();
  const fs::path place = folder.filename() / path.filename();
  if (folder.parent_path().filename() == "configs" && is_file(fs::path(shipped) / place))
    return name_of_place(fs::path(place).replace_extension().string());
  return path.stem().string();
}

std::string list_configurations(const std::string& shipped) {
  const std::vector<std::string> names = recipes_in(shipped);
  if (names.empty())
    user_error("cannot find the configurations that ship with Tessera; cmake --install puts them in share/tessera/configs");
  // Without a limit, one long name would push the descriptions of all others to the right.
  constexpr std::size_t kWidestColumn = 24;
  std::size_t width = 0;
  for (const std::string& name : names) width = std::max(width, std::min(name.size(), kWidestColumn));
  std::ostringstream out;
  out << "in " << shipped << ", for --config:\n";
  fs::path folder;
  for (const std::string& name : names) {
    if (const fs::path its = fs::path(name).parent_path(); its != folder) {
      out << "\n";
      folder = its;
    }
    std::ifstream file(fs::path(shipped) / (name + std::string(kEnding)));
    std::string line;
    std::getline(file, line);
    out << std::left << std::setw(static_cast<int>(width)) << name << "  " << line.substr(std::min(line.size(), line.find_first_not_of("# ")))
        << "\n";
  }
  return out.str();
}

}  // namespace tessera::config
