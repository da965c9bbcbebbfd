// Formats the flags of open_clip_train in two ways: as replies to flags on a command line, and as a table for the docs.
#include <algorithm>
#include <map>

#include "src/base/host.h"
#include "tools/open_clip/flags.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::tools::open_clip {
namespace {

/// Returns the name of the open_clip_train flag that a word contains, with or without "=VALUE"; empty for other words.
std::string flag_name(const std::string& word) {
  if (!word.starts_with("--")) return "";
  std::string name = word.substr(2, word.find('=') - 2);
  std::replace(name.begin(), name.end(), '-', '_');
  return find_flag(name) == nullptr ? "" : name;
}

struct GivenFlag {
  const Flag* flag;
  std::vector<std::string> values;
};

/// Returns the value that open_clip_train's parser stores for a flag, as Python prints it.
std::string python_value(const GivenFlag& given) {
  if (given.flag->words == Words::none) return "True";
  if (given.flag->words == Words::one) return given.values.empty() ? given.flag->standard : given.values.front();
  const bool named = given.flag->name == "aug_cfg";  // whether the flag's values have the form KEY=VALUE
  std::string out;
  for (const std::string& value : given.values) {
    const std::size_t equals = named ? value.find('=') : std::string::npos;
    if (named && equals == std::string::npos) user_error(given.flag->option(), " ", value, ": expected KEY=VALUE");
    out += (out.empty() ? "" : ", ") + (named ? concat("'", value.substr(0, equals), "': ", value.substr(equals + 1)) : value);
  }
  return named ? "{" + out + "}" : "[" + out + "]";
}

/// Returns the open_clip_train flags among the words, in order. `rest` receives the words that belong to no such flag.
std::vector<GivenFlag> flags_among(const std::vector<std::string>& words, std::vector<std::string>& rest) {
  std::vector<GivenFlag> out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string name = flag_name(words[i]);
    if (name.empty()) {
      rest.push_back(words[i]);
      continue;
    }
    GivenFlag& given = out.emplace_back(GivenFlag{find_flag(name), {}});
    const std::size_t equals = words[i].find('=');
    if (equals != std::string::npos) given.values.push_back(words[i].substr(equals + 1));
    const bool more = given.flag->words == Words::several;
    while (i + 1 < words.size() && !words[i + 1].starts_with("--") && (more || (given.flag->words == Words::one && given.values.empty())))
      given.values.push_back(words[++i]);
  }
  return out;
}

std::string without_backticks(std::string text) {
  std::erase(text, '`');
  return text;
}

std::string answer_to(const GivenFlag& given, const Parameters& parameters) {
  const Settings settings = given.flag->settings(parameters);
  std::string answer;
  for (const std::string& setting : settings) answer += (answer.empty() ? "--set " : " ") + shell_line({setting});
  if (settings.empty()) answer = without_backticks(given.flag->counterpart());
  const bool reported = (settings.empty() || given.flag->differs(parameters)) && !given.flag->difference.empty();
  return answer + (reported ? " (" + without_backticks(given.flag->difference) + ")" : "");
}

std::string in_backticks(const std::string& value) {
  return value.empty() ? "" : "`" + (value == "\t" ? "\\t" : value) + "`";
}

}  // namespace

std::string answer_to_flags(const std::vector<std::string>& extra, std::vector<std::string>& rest) {
  const std::vector<GivenFlag> given = flags_among(extra, rest);
  std::map<std::string, std::string> values;
  for (const GivenFlag& flag : given) values[flag.flag->name] = python_value(flag);
  const Parameters parameters = with_defaults(values);
  std::string out;
  for (const GivenFlag& flag : given) {
    std::string words = flag.flag->option();
    for (const std::string& value : flag.values) words += " " + shell_line({value});
    out += concat("  ", words, "  ->  ", answer_to(flag, parameters), "\n");
  }
  return out;
}

std::string flag_table() {
  std::string out = "| open_clip_train | default | Tessera | what differs, or why there is no counterpart |\n| --- | --- | --- | --- |\n";
  for (const Flag& flag : flags())
    out += concat("| `", flag.option(), "` | ", in_backticks(flag.standard), " | ", flag.counterpart(), " | ", flag.difference, " |\n");
  return out;
}

}  // namespace tessera::tools::open_clip
