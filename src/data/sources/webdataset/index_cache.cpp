#include <bit>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <optional>
#include <sys/stat.h>
#include <vector>

#include "src/base/digest.h"
#include "src/data/sources/webdataset/shards.h"
#include "src/remote/store.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;
static_assert(std::endian::native == std::endian::little, "cached indices are little-endian");

constexpr std::string_view kMagic = "TESSERA TAR INDEX 2\n";  // the number is the version of the format
constexpr std::int64_t kTooYoung = 2'000'000'000;             // nanoseconds; no index is stored for a tar changed less than this time ago

struct TarState {
  std::uint64_t size = 0;
  std::int64_t changed = 0;  // nanoseconds since 1970; for a remote tar, a digest of its ETag
  bool operator==(const TarState&) const = default;
};

std::optional<TarState> state_of(const std::string& path) {
  if (remote::is_remote(path)) {
    const remote::ObjectState state = remote::store()->look_up(path);
    return TarState{state.size, static_cast<std::int64_t>(fingerprint(state.version))};
  }
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return TarState{static_cast<std::uint64_t>(status.st_size), std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
}

bool is_young(const std::string& path, const TarState& state) {
  if (remote::is_remote(path)) return false;
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec - state.changed < kTooYoung;
}

void put(std::string& out, const std::string& text) {
  const std::uint64_t size = text.size();
  out.append(reinterpret_cast<const char*>(&size), sizeof(size)).append(text);
}

template <class Number>
void put(std::string& out, Number value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// The functions take() read a value, and return false if the index ends before its last byte.
template <class Number>
bool take(std::string_view& in, Number& value) {
  if (in.size() < sizeof(value)) return false;
  std::memcpy(&value, in.data(), sizeof(value));
  in.remove_prefix(sizeof(value));
  return true;
}

bool take(std::string_view& in, std::string& text) {
  std::uint64_t size = 0;
  if (!take(in, size) || size > in.size()) return false;
  text.assign(in.substr(0, size));
  in.remove_prefix(size);
  return true;
}

std::string packed(const io::TarIndex& index, const TarState& state) {
  std::string out(kMagic);
  const auto put_all = [&](const auto&... values) { (put(out, values), ...); };
  put_all(state.size, state.changed, index.problem, index.problem_offset, index.cut_member, std::uint64_t{index.joined}, index.ignored,
          std::uint64_t{index.members.size()});
  for (const io::TarMember& member : index.members) put_all(member.name, member.offset, member.size);
  put(out, fingerprint(out));
  return out;
}

// Returns nullopt if the cached index is damaged, has another version, or belongs to another state of the tar.
std::optional<io::TarIndex> unpacked(std::string_view in, const TarState& state) {
  std::uint64_t stored = 0, joined = 0, members = 0;
  if (in.size() < kMagic.size() + sizeof(stored) || !in.starts_with(kMagic)) return std::nullopt;
  std::string_view end = in.substr(in.size() - sizeof(stored));
  in.remove_suffix(sizeof(stored));
  take(end, stored);
  if (fingerprint(in) != stored) return std::nullopt;
  in.remove_prefix(kMagic.size());
  TarState then;
  io::TarIndex index;
  const auto take_all = [&](auto&... values) { return (take(in, values) && ...); };
  if (!take_all(then.size, then.changed) || then != state) return std::nullopt;
  if (!take_all(index.problem, index.problem_offset, index.cut_member, joined, index.ignored, members) || members > in.size())
    return std::nullopt;
  index.joined = joined != 0;
  index.members.resize(members);
  for (io::TarMember& member : index.members)
    if (!take_all(member.name, member.offset, member.size)) return std::nullopt;
  return index;
}

fs::path in_folder(const fs::path& folder, const std::string& path) {
  std::error_code ignored;
  const fs::path whole = remote::is_remote(path) ? fs::path(path) : fs::absolute(path, ignored).lexically_normal();
  return folder / concat(std::hex, fingerprint(whole.string()), "-", whole.filename().string(), ".index");
}

// Returns the places where the index of a tar may be, the preferred one first.
std::vector<fs::path> places_of(const std::string& setting, const std::string& path) {
  if (setting != "beside") return {in_folder(setting, path)};
  if (remote::is_remote(path)) return {in_folder(remote::store()->index_folder(), path)};
  std::vector<fs::path> places = {path + ".index"};
  const auto set = [](const char* name) { return std::getenv(name) != nullptr && *std::getenv(name) != '\0'; };
  if (set("XDG_CACHE_HOME"))
    places.push_back(in_folder(fs::path(std::getenv("XDG_CACHE_HOME")) / "tessera" / "index", path));
  else if (set("HOME"))
    places.push_back(in_folder(fs::path(std::getenv("HOME")) / ".cache" / "tessera" / "index", path));
  return places;
}

bool keep_index(const fs::path& place, const std::string& content) {
  // Only one thread of the process writes at a time. Otherwise, if a tar is named twice, threads would share the temporary file.
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  try {
    std::error_code ignored;
    fs::create_directories(place.parent_path(), ignored);
    io::write_file(place.string(), content);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

}  // namespace

IndexCache::IndexCache(std::string setting) : setting_(std::move(setting)) {
  if (setting_.empty()) user_error("index_cache: expected beside, off or a folder, got an empty text");
}

io::TarIndex IndexCache::index(const std::string& path, const Make& make) const {
  const std::optional<TarState> state = state_of(path);
  const auto make_index = [&] { return remote::is_remote(path) ? make(remote::store()->open(path).path()) : make(path); };
  if (setting_ == "off" || !state) return make_index();
  const std::vector<fs::path> places = places_of(setting_, path);
  std::error_code ignored;
  for (const fs::path& place : places)
    if (fs::exists(place, ignored)) try {
        if (auto index = unpacked(io::read_file(place.string()), *state)) return *std::move(index);
      } catch (const UserError&) {
        // An index that cannot be read is made again.
      }
  io::TarIndex index = make_index();
  // What looks like damage may be a temporary read error, so the index of a damaged tar is not kept.
  if (!index.problem.empty() || is_young(path, *state) || state_of(path) != state) return index;
  const std::string content = packed(index, *state);
  for (const fs::path& place : places) {
    if (!keep_index(place, content)) continue;
    if (place != places[0] && !reported_.exchange(true))
      log::info(fs::path(path).parent_path().string(), ": cannot be written; the shards' indices are kept in ",
                place.parent_path().string());
    return index;
  }
  if (!reported_.exchange(true)) log::info(places[0].parent_path().string(), ": cannot be written; the shards' indices are not kept");
  return index;
}

}  // namespace tessera
