#include "src/data/tokenizers/json/pattern.h"

#include <tessera/base/error.h>

namespace tessera::json_tokenizer {
namespace {

class TextPattern : public Pattern {
 public:
  explicit TextPattern(std::string text) : text_(std::move(text)) {}
  void find(std::string_view text, std::vector<Span>& out) const override {
    for (std::size_t at = text.find(text_); at != std::string_view::npos; at = text.find(text_, at + text_.size()))
      out.push_back({at, at + text_.size()});
  }

 private:
  std::string text_;
};

}  // namespace

std::shared_ptr<const Pattern> make_text_pattern(const std::string& text) {
  return std::make_shared<TextPattern>(text);
}

std::shared_ptr<const Pattern> make_regex_pattern(const std::string& regex, const std::string& origin) {
  if (auto known = make_known_pattern(regex)) return known;
  if (auto row = make_row_pattern(regex)) return row;
  return make_icu_pattern(regex, origin);
}

std::shared_ptr<const Pattern> make_pattern(const nlohmann::json& json, const std::string& origin) {
  const bool single = json.is_object() && json.size() == 1;
  if (single && json.contains("String") && json.at("String").is_string()) {
    const auto text = json.at("String").get<std::string>();
    if (text.empty()) user_error(origin, ": a pattern is empty");
    return make_text_pattern(text);
  }
  if (single && json.contains("Regex") && json.at("Regex").is_string()) return make_regex_pattern(json.at("Regex").get<std::string>(), origin);
  user_error(origin, ": a pattern is neither a String nor a Regex: no other kind is supported");
}

}  // namespace tessera::json_tokenizer
