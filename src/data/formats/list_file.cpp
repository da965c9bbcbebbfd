#include "src/data/formats/list_file.h"

#include "src/io/stand_in.h"
#include <tessera/base/text.h>

namespace tessera {

std::vector<std::string> read_list(const std::string& path) {
  std::vector<std::string> items;
  for (const std::string& line : split(io::read_data_file(path), '\n')) {
    const std::string_view stripped = strip(line);
    if (!stripped.empty() && stripped.front() != '#') items.emplace_back(stripped);
  }
  return items;
}

}  // namespace tessera
