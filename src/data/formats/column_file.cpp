#include "src/data/formats/column_file.h"

#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "src/base/host.h"
#include "src/base/printable.h"
#include "src/io/stand_in.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kArrowLibrary = "libtessera_arrow.so";
constexpr const char* kInstall = "pip install pyarrow==" TESSERA_PYARROW_VERSION;

/// Our library that links Arrow. If this library is missing or cannot be loaded, `open` is null and `problem` is the reason.
struct ArrowLibrary {
  decltype(&tessera_open_columns) open = nullptr;
  std::string problem;
};

// Returns the paths where the library may be: next to the program or library that contains this code, in lib/ near that folder,
// in the build folder, and in the install folder.
std::vector<fs::path> arrow_library_places() {
  std::vector<fs::path> places;
  const fs::path folder = code_folder();
  for (const fs::path& place : {folder, folder.parent_path() / "lib", folder.parent_path().parent_path() / "lib"})
    if (!folder.empty()) places.push_back(place / kArrowLibrary);
  places.emplace_back(TESSERA_ARROW_BUILT);
  places.emplace_back(TESSERA_ARROW_INSTALLED);
  return places;
}

ArrowLibrary load_arrow() {
  std::error_code unknown;
  for (const fs::path& place : arrow_library_places()) {
    if (!fs::exists(place, unknown)) continue;
    void* library = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
      return {nullptr, concat("Arrow's libraries cannot be loaded: ", kInstall, " (", printable(::dlerror()), ")")};
    return {reinterpret_cast<decltype(&tessera_open_columns)>(::dlsym(library, "tessera_open_columns")), {}};
  }
  return {nullptr, concat("Tessera was built without Arrow: ", kInstall,
                          " next to LibTorch, as scripts/setup.sh does, and build again")};
}

const ArrowLibrary& arrow_library() {
  static const ArrowLibrary library = load_arrow();
  return library;
}

}  // namespace

bool can_read_columns() {
  return arrow_library().open != nullptr;
}

std::shared_ptr<const ColumnFile> open_columns(const std::string& path) {
  if (!can_read_columns()) user_error(path, ": ", arrow_library().problem);
  std::error_code failed;
  if (fs::is_directory(path, failed)) user_error(path, ": expected a file, got a folder");
  std::ifstream file(path, std::ios::binary);
  if (!file) user_error(path, ": cannot be opened: ", std::strerror(errno));
  try {
    return std::shared_ptr<const ColumnFile>(arrow_library().open(path.c_str()));
  } catch (const std::exception& error) {
    std::string start(200, '\0');
    file.read(start.data(), std::ssize(start));
    start.resize(static_cast<std::size_t>(file.gcount()));
    const std::string text = io::describe_text(start);
    user_error(path, ": cannot be read as Parquet or Arrow: ", text.empty() ? printable(error.what()) : text);
  }
}

}  // namespace tessera
