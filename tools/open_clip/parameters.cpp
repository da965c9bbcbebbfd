#include "tools/open_clip/parameters.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <set>

#include <nlohmann/json.hpp>

#include "tools/open_clip/flags.h"
#include <tessera/base/dump_utf8.h>
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::tools::open_clip {
namespace {

bool is_number(const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data(), end, value);
  return !text.empty() && failure == std::errc() && rest == end && std::isfinite(value);
}

bool is_name(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::islower(c) != 0 || std::isdigit(c) != 0 || c == '_';
  });
}

/// Returns whether YAML 1.1 or 1.2 reads this word as something other than text.
bool is_yaml_word(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  static const std::set<std::string> words = {"null", "true", "false", "yes", "no", "on", "off", "y", "n", ".nan", ".inf"};
  return words.contains(text);
}

std::string json_text(const std::string& text) {
  return dump_utf8(nlohmann::json(text));
}

/// Decodes the Python string literal at `place`, and moves `place` past its closing quote.
std::string python_string(const std::string& literal, std::size_t& place) {
  const char mark = literal[place++];
  std::string out;
  for (; place < literal.size() && literal[place] != mark; ++place) {
    if (literal[place] != '\\' || place + 1 == literal.size()) {
      out += literal[place];
      continue;
    }
    const char escaped = literal[++place];
    out += escaped == 't' ? '\t' : escaped == 'n' ? '\n' : escaped;
  }
  ++place;
  return out;
}

}  // namespace

Parameters::Parameters(std::map<std::string, std::string> given) : values_(std::move(given)) {
  for (const Flag& flag : flags()) values_.emplace(flag.name, flag.standard);
  values_.emplace("world_size", "1");
  values_.emplace("csv_rows", "None");
}

const std::string& Parameters::text(const std::string& name) const {
  return values_.at(name);
}

bool Parameters::has(const std::string& name) const {
  static const std::set<std::string> nothing = {"", "None", "False", "[]", "{}", "()"};
  return !nothing.contains(text(name));
}

bool Parameters::changed(const std::string& name) const {
  const Flag* flag = find_flag(name);
  return flag != nullptr && text(name) != flag->standard;
}

double Parameters::number(const std::string& name) const {
  if (!is_number(text(name))) user_error(name, " is ", text(name), ": expected a number");
  return std::stod(text(name));
}

std::int64_t Parameters::whole(const std::string& name) const {
  const double value = number(name);
  if (value != std::floor(value) || std::abs(value) > 1e15) user_error(name, " is ", text(name), ": expected a whole number");
  return static_cast<std::int64_t>(value);
}

std::string Parameters::yaml(const std::string& name) const {
  const std::string& value = text(name);
  if (value == "None" || value == "True" || value == "False" || (!value.empty() && std::string_view("[({").find(value[0]) != std::string_view::npos))
    return yaml_of_python(value);
  return is_number(value) ? value : yaml_text(value);
}

std::vector<std::string> Parameters::unknown() const {
  static const std::set<std::string> worked_out = {
      "checkpoint_path", "distill", "distributed", "local_rank", "log_level", "log_path",         "rank",  "save_logs",
      "tensorboard",     "train_sz", "val_sz",     "wandb",      "world_size", "tensorboard_path", "csv_rows"};
  std::vector<std::string> out;
  for (const auto& [name, value] : values_)
    if (find_flag(name) == nullptr && !worked_out.contains(name)) out.push_back(name);
  return out;
}

Parameters parse_params(const std::string& text, const std::string& file) {
  std::map<std::string, std::string> given;
  std::string* last = nullptr;  // the value that the next line may continue
  for (std::string line : split(text, '\n')) {
    if (line.ends_with("\r")) line.pop_back();
    const std::size_t colon = line.find(':');
    const std::string name = colon == std::string::npos ? "" : line.substr(0, colon);
    if (is_name(name)) {
      const bool value = colon + 1 < line.size();
      if (value && line[colon + 1] != ' ') user_error(file, ": ", line, ": expected name: value");
      last = &(given[name] = value ? line.substr(colon + 2) : "");
    } else if (last != nullptr && !strip(line).empty()) {
      *last += "\n" + line;
    } else if (!strip(line).empty()) {
      user_error(file, ": ", line, ": expected lines of name: value, as open_clip_train writes them into params.txt of its log folder");
    }
  }
  const bool known = std::any_of(given.begin(), given.end(), [](const auto& item) { return find_flag(item.first) != nullptr; });
  if (!known) user_error(file, ": has no parameter of open_clip_train: expected its params.txt, lines of name: value");
  return Parameters(std::move(given));
}

std::string yaml_text(const std::string& text) {
  const auto plain = [](unsigned char c) { return std::isalnum(c) != 0 || std::string_view("/._-+@%=").find(static_cast<char>(c)) != std::string_view::npos; };
  const bool begins_well = !text.empty() && (std::isalpha(static_cast<unsigned char>(text[0])) != 0 || text[0] == '/');
  return begins_well && std::all_of(text.begin(), text.end(), plain) && !is_yaml_word(text) ? text : json_text(text);
}

std::string yaml_of_python(const std::string& literal) {
  std::string out;
  for (std::size_t place = 0; place < literal.size();) {
    const char c = literal[place];
    if (c == '\'' || c == '"') {
      out += json_text(python_string(literal, place));
    } else if (std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_') {
      const std::size_t begin = place;
      while (place < literal.size() && (std::isalnum(static_cast<unsigned char>(literal[place])) != 0 || literal[place] == '_')) ++place;
      const std::string word = literal.substr(begin, place - begin);
      out += word == "None" ? "null" : word == "True" ? "true" : word == "False" ? "false" : word;
    } else if (std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '.') {
      for (; place < literal.size() && (std::isalnum(static_cast<unsigned char>(literal[place])) != 0 || literal[place] == '.' ||
                                        ((literal[place] == '-' || literal[place] == '+') && std::tolower(literal[place - 1]) == 'e'));
           ++place)
        out += literal[place];
    } else {
      out += c == '(' ? '[' : c == ')' ? ']' : c;
      ++place;
    }
  }
  return out;
}

}  // namespace tessera::tools::open_clip
