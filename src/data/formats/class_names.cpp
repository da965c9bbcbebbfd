#include "src/data/formats/class_names.h"

#include <map>

#include "src/base/printable.h"
#include "src/io/stand_in.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>

namespace tessera {

std::vector<std::string> read_class_names(const config::FilePath& path) {
  config::require(path);
  std::vector<std::string> names, twice;
  std::map<std::string, std::size_t> seen;
  for (const std::string& line : split(strip(io::read_data_file(path)), '\n')) {
    names.emplace_back(strip(line));
    if (names.back().empty()) user_error(path, ":", names.size(), ": expected a class name, got an empty line");
    const auto [first, is_new] = seen.emplace(names.back(), names.size());
    if (!is_new && twice.size() < 5)
      twice.push_back(concat(printable(names.back(), 60), " (lines ", first->second, " and ", names.size(), ")"));
  }
  if (!twice.empty())
    log::warning(path, ": classes have the same name: ", join_names(twice),
                 "; samples need their class's index, not its name");
  return names;
}

std::vector<std::string> read_list(const std::string& path) {
  std::vector<std::string> items = split(io::read_data_file(path), '\n');
  for (std::string& item : items) item = std::string(strip(item));
  std::erase_if(items, [](const std::string& item) { return item.empty() || item.front() == '#'; });
  return items;
}

std::string fill_template(std::string text, const std::string& name) {
  const std::size_t place = text.find("{}");
  return place == std::string::npos ? text : text.replace(place, 2, name);
}

}  // namespace tessera
