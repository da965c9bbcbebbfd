#include "src/evaluation/tasks/class_queries.h"

#include "src/base/printable.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {

ClassQueries class_queries(const std::vector<std::string>& lines, const std::string& setting) {
  ClassQueries out;
  for (const std::string& line : lines) {
    const std::size_t colon = line.find(':');
    const std::size_t first = out.names.size();
    for (const std::string& part : split(colon == std::string::npos ? line : line.substr(colon + 1), ',')) {
      const std::string name(strip(part));
      if (name.empty())
        user_error(setting, ": class ", out.classes.size(), ", \"", printable(line, 60),
                   "\", has an empty name: expected NAME, NAME, ... or CLASS: NAME, NAME, ...");
      out.names.push_back(name);
      out.class_of.push_back(std::ssize(out.classes));
    }
    out.classes.push_back(colon == std::string::npos ? out.names[first] : std::string(strip(line.substr(0, colon))));
  }
  return out;
}

}  // namespace tessera
