#include <charconv>

#include "src/base/printable.h"
#include "src/index/token_names.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera::index {
namespace {

std::optional<std::int32_t> whole_number(std::string_view text) {
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

}  // namespace

TokenNames::TokenNames(std::string_view lines, const std::string& origin) : names_(split_lines(lines)) {
  if (names_.empty()) user_error(origin, ": the vocabulary is empty; expected one token per line");
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (!is_utf8(names_[i])) user_error(origin, ":", i + 1, ": not UTF-8: ", printable(names_[i], 40));
    tokens_.emplace(names_[i], static_cast<std::int32_t>(i));
  }
}

TokenNames TokenNames::read(const std::string& path) {
  return {io::read_file(path), path};
}

bool TokenNames::has_own_line(std::int32_t token) const {
  return token >= 0 && token < size() && tokens_.at(names_[static_cast<std::size_t>(token)]) == token;
}

std::string TokenNames::name(std::int32_t token) const {
  if (are_numbers()) return std::to_string(token);
  if (has_own_line(token)) return names_[static_cast<std::size_t>(token)];
  return "[" + std::to_string(token) + "]";
}

std::optional<std::int32_t> TokenNames::find(const std::string& name) const {
  if (are_numbers()) return whole_number(name);
  if (const auto found = tokens_.find(name); found != tokens_.end()) return found->second;
  if (name.size() > 2 && name.front() == '[' && name.back() == ']') {
    const std::optional<std::int32_t> token = whole_number(std::string_view(name).substr(1, name.size() - 2));
    if (token && !has_own_line(*token)) return token;
  }
  return std::nullopt;
}

std::int32_t TokenNames::at(const std::string& name, const std::string& place) const {
  if (const std::optional<std::int32_t> token = find(name)) return *token;
  if (are_numbers())
    user_error(place, ": expected the number of a token, got ", printable(name, 60), " (names need --vocabulary)");
  const std::string near = nearest_name(name, names_);
  user_error(place, ": there is no token ", printable(name, 60), near.empty() ? "" : ": did you mean " + near + "?");
}

std::string TokenNames::lines() const {
  std::string text;
  for (const std::string& name : names_) text += name + "\n";
  return text;
}

}  // namespace tessera::index
