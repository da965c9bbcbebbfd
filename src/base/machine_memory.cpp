#include "src/base/machine_memory.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

// Returns the number in a file of a control group. Returns `otherwise` if the file is missing or contains "max".
std::int64_t number_in(const std::string& path, std::int64_t otherwise) {
  std::ifstream file(path);
  std::int64_t number = 0;
  return file >> number ? number : otherwise;
}

// Returns the number of `key` in a file with lines "key number". Returns 0 if there is no such line.
std::int64_t number_of(const std::string& key, const std::string& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  for (std::string word; file >> word >> number;)
    if (word == key) return number;
  return 0;
}

// The names that a version of Linux's control groups uses.
struct GroupNames {
  const char *folder, *limit, *used, *cache;
};
constexpr GroupNames kVersion1{"/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr GroupNames kVersion2{"", "memory.max", "memory.current", "inactive_file"};

// Returns how many bytes the control group in `folder` may still allocate or, with `whole`, its limit. When a group reaches its limit, the
// kernel frees page cache that was not used lately.
std::int64_t left_in_group(const std::string& folder, const GroupNames& names, bool whole) {
  const std::int64_t limit = number_in(folder + names.limit, kUnlimited);
  if (limit == kUnlimited || whole) return limit;
  const std::int64_t used = number_in(folder + names.used, 0), cache = number_of(names.cache, folder + "memory.stat");
  return std::max<std::int64_t>(0, limit - (used - std::min(used, cache)));
}

// Returns the number of bytes that /proc/meminfo gives for `key`.
std::int64_t of_machine(const char* key) {
  const std::string kilobytes = value_in("/proc/meminfo", key);
  return kilobytes.empty() ? kUnlimited : std::stoll(kilobytes) * 1024;
}

}  // namespace

std::string value_in(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon != std::string::npos && strip(std::string_view(line).substr(0, colon)) == key)
      return std::string(strip(std::string_view(line).substr(colon + 1)));
  }
  return "";
}

std::int64_t free_memory() {
  return std::min(of_machine("MemAvailable"), left_in_control_groups());
}

std::int64_t whole_memory() {
  return std::min(of_machine("MemTotal"), left_in_control_groups("/proc/self/cgroup", "/sys/fs/cgroup", /*whole=*/true));
}

std::int64_t left_in_control_groups(const std::string& list, const std::string& tree, bool whole) {
  std::int64_t left = kUnlimited;
  std::ifstream file(list);
  for (std::string line; std::getline(file, line);) {  // NUMBER:CONTROLLERS:GROUP, without controllers in version 2
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::vector<std::string> controllers = split(line.substr(first + 1, second - first - 1), ',');
    const bool of_memory = contains(controllers, "memory");
    if (!of_memory && second > first + 1) continue;
    const GroupNames& names = of_memory ? kVersion1 : kVersion2;
    // The limit of a group also holds for the groups in it.
    for (std::filesystem::path group = line.substr(second + 1);; group = group.parent_path()) {
      left = std::min(left, left_in_group(concat(tree, names.folder, group.string(), "/"), names, whole));
      if (!group.has_relative_path()) break;
    }
  }
  return left;
}

}  // namespace tessera
