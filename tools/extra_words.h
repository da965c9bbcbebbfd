#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "tools/overrides.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::tools {

/// Handles command lines like "--set a.b= 1", where the word `extra` ("1") belongs to no option: returns "--set a.b=1". Returns an empty
/// text for other command lines.
inline std::string joined_assignment(const std::string& extra, const std::vector<std::string>& line) {
  const auto place = std::find(line.begin(), line.end(), extra);
  if (place - line.begin() < 2 || place == line.end()) return "";
  const std::string& option = *(place - 2);
  const std::string& before = *(place - 1);
  return option.starts_with("--") && is_assignment(before) && before.ends_with("=") ? option + " " + before + extra
                                                                                    : "";
}

/// Explains what is wrong with words of a command line that belong to no option, and how to fix it. `extra` contains these words in their
/// order and is not empty. `line` contains all words of the command line, and `options` the names of the program's options, such as
/// "--set".
inline std::string describe_extra_words(const std::vector<std::string>& extra, const std::vector<std::string>& line,
                                        const std::vector<std::string>& options) {
  const std::string& first = extra.front();
  if (const std::string meant = joined_assignment(first, line); !meant.empty())
    return concat(first, ": expected KEY=VALUE without spaces: ", meant);
  if (is_assignment(first) && contains(options, "--set")) return first + ": put --set before it: --set " + first;
  const bool is_yaml = first.ends_with(".yaml") || first.ends_with(".yml");
  if (is_yaml && contains(options, "--config") && !contains(line, "--config"))
    return concat(first, ": belongs to no option: did you mean --config ", first, "?");
  if (first.starts_with("-")) {
    const std::string nearest = nearest_name(first.substr(0, first.find('=')), options);
    return concat(first, ": there is no such option", nearest.empty() ? "" : ": did you mean " + nearest + "?");
  }
  std::string text;
  for (const std::string& word : extra) text += (text.empty() ? "" : " ") + word;
  return text + (extra.size() == 1 ? ": belongs" : ": belong") +
         " to no option. Patterns (part-{0..9}.tar) and values with spaces need quotes: otherwise the shell splits them";
}

/// The type of describe_extra_words(). A program may pass its own function of this type to parse_arguments().
using DescribeExtraWords =
    std::function<std::string(const std::vector<std::string>& extra, const std::vector<std::string>& line, const std::vector<std::string>& options)>;

}  // namespace tessera::tools
