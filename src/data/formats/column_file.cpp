#include "src/data/formats/column_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "src/base/host.h"
#include "src/base/printable.h"
#include "src/io/stand_in.h"
#include "src/io/tar.h"
#include "src/remote/store.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

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
    if (library == nullptr) return {nullptr, concat("Arrow's libraries cannot be loaded: ", kInstall, " (", printable(::dlerror()), ")")};
    return {reinterpret_cast<decltype(&tessera_open_columns)>(::dlsym(library, "tessera_open_columns")), {}};
  }
  return {nullptr, concat("Tessera was built without Arrow: ", kInstall, " next to LibTorch, as scripts/setup.sh does, and build again")};
}

/// A remote file, whose pieces are copies in the cache as long as they are read.
class RemoteBytes : public FileBytes {
 public:
  explicit RemoteBytes(const std::string& address)
      : address_(address), size_(static_cast<std::int64_t>(remote::store()->look_up(address).size)) {}

  std::int64_t size() const override { return size_; }
  void read(const ByteRange& piece, const ByteRange& wanted, char* out) const override {
    const auto unsigned_of = [](std::int64_t number) { return static_cast<std::uint64_t>(number); };
    const remote::Lease copy = remote::store()->open({address_, unsigned_of(piece.offset), unsigned_of(piece.size)});
    io::RandomAccessFile(copy.path()).read(unsigned_of(wanted.offset) - copy.first(), out, unsigned_of(wanted.size));
  }

 private:
  const std::string address_;
  const std::int64_t size_;
};

/// A table and what it reads from; destroyed in the reverse order.
struct RemoteTable {
  std::unique_ptr<const RemoteBytes> bytes;     // of a Parquet file
  std::unique_ptr<const remote::LocalFile> copy;  // of an Arrow file
  std::unique_ptr<const ColumnFile> table;
};

const ArrowLibrary& arrow_library() {
  static const ArrowLibrary library = load_arrow();
  return library;
}

const Column* column_named(const std::vector<Column>& columns, std::string_view name) {
  const auto found = std::ranges::find(columns, name, &Column::name);
  return found == columns.end() ? nullptr : &*found;
}

// Follows the names from a column to a member below it. Returns null if there is no such member.
const Column* member_of(const Column* column, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    while (column != nullptr && column->kind == Column::Kind::list) column = &column->members.at(0);
    if (column != nullptr) column = column_named(column->members, name);
  }
  return column;
}

[[noreturn]] void refuse_table(const std::string& path, const std::string& start, const std::exception& error) {
  const std::string text = io::describe_text(start);
  user_error(path, ": cannot be read as Parquet or Arrow: ", text.empty() ? printable(error.what()) : text);
}

std::shared_ptr<const ColumnFile> open_remote(const std::string& address) {
  constexpr std::array arrow{".arrow", ".feather", ".ipc"};
  const auto out = std::make_shared<RemoteTable>();
  const std::string name = remote::file_name(address);
  try {
    if (std::ranges::any_of(arrow, [&](const char* ending) { return name.ends_with(ending); }))
      out->copy = std::make_unique<const remote::LocalFile>(address);
    else
      out->bytes = std::make_unique<const RemoteBytes>(address);
    out->table.reset(arrow_library().open(out->copy ? out->copy->path().c_str() : address.c_str(), out->bytes.get()));
  } catch (const UserError&) {
    throw;
  } catch (const std::exception& error) {
    refuse_table(address, remote::store()->read(address, 0, std::min<std::uint64_t>(200, remote::store()->look_up(address).size)), error);
  }
  return {out, out->table.get()};
}

}  // namespace

bool can_read_columns() {
  return arrow_library().open != nullptr;
}

std::shared_ptr<const ColumnFile> open_columns(const std::string& path) {
  if (!can_read_columns()) user_error(path, ": ", arrow_library().problem);
  if (remote::is_remote(path)) return open_remote(path);
  std::error_code failed;
  if (fs::is_directory(path, failed)) user_error(path, ": expected a file, got a folder");
  std::ifstream file(path, std::ios::binary);
  if (!file) user_error(path, ": cannot be opened: ", std::strerror(errno));
  try {
    return std::shared_ptr<const ColumnFile>(arrow_library().open(path.c_str(), nullptr));
  } catch (const std::exception& error) {
    std::string start(200, '\0');
    file.read(start.data(), std::ssize(start));
    start.resize(static_cast<std::size_t>(file.gcount()));
    refuse_table(path, start, error);
  }
}

std::optional<ColumnPath> find_column(const std::vector<Column>& columns, const std::string& name) {
  for (std::size_t end = name.size(); end != std::string::npos && end > 0; end = name.rfind('.', end - 1)) {
    const Column* column = column_named(columns, std::string_view(name).substr(0, end));
    if (column == nullptr) continue;
    std::vector<std::string> below;
    if (end < name.size()) below = split(std::string_view(name).substr(end + 1), '.');
    if (const Column* there = member_of(column, below)) return ColumnPath{column->name, below, there->kind, there->type};
  }
  return std::nullopt;
}

nlohmann::json value_below(const nlohmann::json& value, const std::vector<std::string>& below, std::size_t from) {
  if (from == below.size()) return value;
  if (value.is_array()) {
    nlohmann::json out = nlohmann::json::array();
    for (const nlohmann::json& each : value) {
      nlohmann::json found = value_below(each, below, from);
      if (!found.is_array())
        out.push_back(std::move(found));
      else
        for (nlohmann::json& item : found) out.push_back(std::move(item));
    }
    return out;
  }
  if (!value.is_object()) return nullptr;
  const auto found = value.find(below[from]);
  return found == value.end() ? nlohmann::json(nullptr) : value_below(*found, below, from + 1);
}

std::string column_names(const std::vector<Column>& columns) {
  constexpr std::size_t most = 40;
  std::vector<std::string> names;
  for (const Column& column : columns)
    if (names.size() < most) names.push_back(printable(column.name, 60));
  return names.empty() ? "none" : join_names(names);
}

}  // namespace tessera
