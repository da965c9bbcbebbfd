#include "src/foreign/open_clip_run.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <set>

#include <nlohmann/json.hpp>

#include "src/base/dump_utf8.h"
#include "src/io/stand_in.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
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

/// Converts a Python literal to YAML on one line: ('a', 1, None) becomes ["a", 1, null].
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

}  // namespace

OpenClipParameters::OpenClipParameters(std::map<std::string, std::string> given, std::map<std::string, std::string> defaults)
    : values_(std::move(given)), defaults_(std::move(defaults)) {
  values_.insert(defaults_.begin(), defaults_.end());
}

const std::string& OpenClipParameters::text(const std::string& name) const {
  return values_.at(name);
}

bool OpenClipParameters::has(const std::string& name) const {
  static const std::set<std::string> nothing = {"", "None", "False", "[]", "{}", "()"};
  const auto value = values_.find(name);
  return value != values_.end() && !nothing.contains(value->second);
}

bool OpenClipParameters::changed(const std::string& name) const {
  const auto standard = defaults_.find(name);
  return standard != defaults_.end() && text(name) != standard->second;
}

double OpenClipParameters::number(const std::string& name) const {
  if (!is_number(text(name))) user_error(name, " is ", text(name), ": expected a number");
  return std::stod(text(name));
}

std::int64_t OpenClipParameters::whole(const std::string& name) const {
  const double value = number(name);
  if (value != std::floor(value) || std::abs(value) > 1e15) user_error(name, " is ", text(name), ": expected a whole number");
  return static_cast<std::int64_t>(value);
}

std::string OpenClipParameters::yaml(const std::string& name) const {
  const std::string& value = text(name);
  if (value == "None" || value == "True" || value == "False" || (!value.empty() && std::string_view("[({").find(value[0]) != std::string_view::npos))
    return yaml_of_python(value);
  return is_number(value) ? value : yaml_text(value);
}

std::vector<std::string> OpenClipParameters::unknown() const {
  static const std::set<std::string> worked_out = {
      "checkpoint_path", "distill", "distributed", "local_rank", "log_level", "log_path",         "rank",  "save_logs",
      "tensorboard",     "train_sz", "val_sz",     "wandb",      "world_size", "tensorboard_path", "csv_rows"};
  std::vector<std::string> out;
  for (const auto& [name, value] : values_)
    if (!defaults_.contains(name) && !worked_out.contains(name)) out.push_back(name);
  return out;
}

std::map<std::string, std::string> parse_open_clip_params(std::string text, const std::string& file) {
  io::remove_byte_order_mark(text);
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
  return given;
}

std::string yaml_text(const std::string& text) {
  const auto plain = [](unsigned char c) { return std::isalnum(c) != 0 || std::string_view("/._-+@%=").find(static_cast<char>(c)) != std::string_view::npos; };
  const bool begins_well = !text.empty() && (std::isalpha(static_cast<unsigned char>(text[0])) != 0 || text[0] == '/');
  return begins_well && std::all_of(text.begin(), text.end(), plain) && !is_yaml_word(text) ? text : json_text(text);
}

}  // namespace tessera
