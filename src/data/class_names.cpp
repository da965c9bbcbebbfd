#include "src/data/class_names.h"

#include <map>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera {

std::vector<std::string> read_class_names(const std::string& path) {
  std::vector<std::string> names;
  std::map<std::string, std::size_t> seen;
  for (const std::string& line : split(strip(io::read_file(path)), '\n')) {
    names.emplace_back(strip(line));
    if (names.back().empty()) user_error(path, ":", names.size(), ": expected a class name, got an empty line");
    const auto [first, is_new] = seen.emplace(names.back(), names.size());
    if (!is_new)
      user_error(path, ":", names.size(), ": class ", names.back(), " stands in line ", first->second, " already");
  }
  return names;
}

}  // namespace tessera
