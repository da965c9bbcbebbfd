#include "src/data/formats/class_names.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "src/base/printable.h"
#include "src/io/stand_in.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/data/source.h>

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

void set_label(const std::string& text, const std::vector<std::string>& classes, const char* setting, Sample& sample) {
  std::int64_t label = -1;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), label);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) {
    const auto found = std::find(classes.begin(), classes.end(), text);
    if (classes.empty())
      sample.class_name = text;
    else if (found != classes.end() && std::find(found + 1, classes.end(), text) == classes.end())
      sample.label = found - classes.begin();
    else
      throw SampleError("bad_label",
                        concat("its class \"", printable(text, 60), "\" (", setting, ") is ",
                               found == classes.end() ? "neither an index nor a name" : "the name of several classes",
                               " in the file of classes (classes)"));
    return;
  }
  if (label < -1 || (!classes.empty() && label >= static_cast<std::int64_t>(classes.size())))
    throw SampleError("bad_label", concat("its class index is ", label, " (", setting, "), but there are ",
                                          classes.size(), " classes (classes)"));
  sample.label = label;
}

}  // namespace tessera
