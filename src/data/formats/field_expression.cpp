#include "src/data/formats/field_expression.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>

#include "src/base/printable.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

using Json = nlohmann::json;
using Values = FieldExpression::Values;
using Condition = FieldExpression::Condition;

constexpr int kDeepestExpression = 100;  // maximum nesting depth of parentheses and `not`

struct Token {
  enum class Kind { end, word, field, text, number, sign };
  Kind kind = Kind::end;
  std::string text;
  Json value = nullptr;  // the number, if kind is number
  std::size_t begin = 0;
};

/// A field or a literal.
struct Operand {
  std::optional<std::size_t> field;
  Json literal = nullptr;

  Json in(const Values& values) const { return field ? values.of(*field) : literal; }
  // If the result of a condition is unknown because of this operand, remembers the field.
  Truth noted(Truth result, Values& values) const {
    if (result == Truth::unknown && field) values.unknown_field = *field;
    return result;
  }
};

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::optional<Json> parse_number(std::string_view text) {
  text = strip(text);
  std::int64_t whole = 0;
  double number = 0;
  const char *begin = text.data(), *end = begin + text.size();
  const auto is_all = [&](const std::from_chars_result& result) { return result.ec == std::errc() && result.ptr == end; };
  if (is_all(std::from_chars(begin, end, whole))) return Json(whole);
  return is_all(std::from_chars(begin, end, number)) ? std::optional(Json(number)) : std::nullopt;
}

Truth truth(bool value) {
  return value ? Truth::yes : Truth::no;
}

Truth negate(Truth value) {
  return value == Truth::unknown ? value : truth(value == Truth::no);
}

std::optional<bool> as_bool(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (!value.is_string()) return std::nullopt;
  const std::string text = lower_case(value.get<std::string>());
  return text == "true" ? std::optional(true) : text == "false" ? std::optional(false) : std::nullopt;
}

// long double represents every 64-bit integer and every double exactly.
std::optional<long double> as_number(const Json& value) {
  if (value.is_string()) {
    const auto number = parse_number(value.get_ref<const std::string&>());
    return number ? as_number(*number) : std::nullopt;
  }
  if (value.is_number_unsigned()) return value.get<std::uint64_t>();
  if (value.is_number_integer()) return value.get<std::int64_t>();
  return value.is_number_float() ? std::optional<long double>(value.get<double>()) : std::nullopt;
}

// Returns a number below zero if a < b, zero if a = b, above zero if a > b; nullopt if the values are not comparable.
std::optional<int> order_of(const Json& a, const Json& b) {
  if (is_missing(a) || is_missing(b)) return std::nullopt;
  if (a.is_string() && b.is_string()) return a.get_ref<const std::string&>().compare(b.get_ref<const std::string&>());
  if (a.is_boolean() || b.is_boolean()) {
    const auto left = as_bool(a), right = as_bool(b);
    return left && right ? std::optional(static_cast<int>(*left) - static_cast<int>(*right)) : std::nullopt;
  }
  const auto left = as_number(a), right = as_number(b);
  if (!left || !right || std::isnan(*left) || std::isnan(*right)) return std::nullopt;
  return *left < *right ? -1 : *left > *right ? 1 : 0;
}

Truth compare(const Json& a, const std::string& sign, const Json& b) {
  const auto order = order_of(a, b);
  if (!order) return Truth::unknown;
  return truth((*order == 0 && sign.ends_with('=') && sign != "!=") || (*order < 0 && (sign[0] == '<' || sign == "!=")) ||
               (*order > 0 && (sign[0] == '>' || sign == "!=")));
}

/// Parses an expression by recursive descent.
class Parser {
 public:
  Parser(const std::string& text, std::vector<std::string>& names) : text_(text), fields_(names) { take(); }

  Condition parse() {
    Condition out = any();
    if (token_.kind != Token::Kind::end) expected("and, or, or the end");
    return out;
  }

 private:
  // Returns the byte at the current position, or `more` bytes after it; 0 at the end.
  int here(std::size_t more = 0) const { return at_ + more < text_.size() ? static_cast<unsigned char>(text_[at_ + more]) : 0; }
  static bool is_digit(int c) { return c >= '0' && c <= '9'; }
  static bool is_letter(int c) { return std::isalpha(c) != 0 || c == '_' || c >= 0x80; }

  // Reads the next token.
  void take() {
    while (std::isspace(here()) != 0) ++at_;
    token_ = {};
    token_.begin = at_;
    if (at_ == text_.size()) return;
    const int c = here(), after = here(1);
    if (c == '\'' || c == '"' || c == '`') return take_quoted(static_cast<char>(c));
    if (is_digit(c) || ((c == '-' || c == '.') && (is_digit(after) || after == '.'))) return take_number();
    token_.kind = is_letter(c) ? Token::Kind::word : Token::Kind::sign;
    while (is_letter(c) && (is_letter(here()) || is_digit(here()) || here() == '.')) token_.text += text_[at_++];
    for (const std::string_view sign : {"==", "!=", "<>", "<=", ">=", "=", "<", ">", "(", ")", ","})
      if (token_.text.empty() && text_.compare(at_, sign.size(), sign) == 0) token_.text = sign;
    if (token_.text.empty()) fail(at_, concat("\"", printable(text_.substr(at_, 1)), "\" is not understood"));
    at_ = token_.begin + token_.text.size();
  }

  // Reads a text in quotes. A quote inside the text is doubled.
  void take_quoted(char quote) {
    token_.kind = quote == '`' ? Token::Kind::field : Token::Kind::text;
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] == quote && text_[++at_] != quote) return;  // the text ends in a zero byte
      token_.text += text_[at_];
    }
    fail(token_.begin, "the quote that opens here is never closed");
  }

  void take_number() {
    token_.kind = Token::Kind::number;
    const auto belongs = [this](int c) {
      const char before = text_[at_ - 1];
      return is_digit(c) || c == '.' || is_letter(c) || ((c == '-' || c == '+') && (before == 'e' || before == 'E'));
    };
    do token_.text += text_[at_++];
    while (belongs(here()));
    const auto value = parse_number(token_.text);
    if (!value) fail(token_.begin, concat("\"", printable(token_.text, 60), "\" is not a number"));
    token_.value = *value;
  }

  [[noreturn]] void fail(std::size_t place, const std::string& problem) const {
    user_error("filter \"", printable(text_, 300), "\": at character ", place + 1, ": ", problem);
  }

  bool is_word(const char* word) const { return token_.kind == Token::Kind::word && lower_case(token_.text) == word; }
  bool take_if(bool there) {
    if (there) take();
    return there;
  }
  bool take_word(const char* word) { return take_if(is_word(word)); }
  bool take_sign(const char* sign) { return take_if(token_.kind == Token::Kind::sign && token_.text == sign); }

  [[noreturn]] void expected(const std::string& what) const {
    fail(token_.begin,
         concat("expected ", what, ", got ", token_.kind == Token::Kind::end ? "the end" : concat("\"", printable(token_.text, 60), "\"")));
  }

  Condition any() {
    return joined("or", Truth::yes, [this] { return all(); });
  }
  Condition all() {
    return joined("and", Truth::no, [this] { return negation(); });
  }

  template <class Part>
  Condition joined(const char* word, Truth deciding, const Part& part) {
    std::vector<Condition> parts;
    do parts.push_back(part());
    while (take_word(word));
    return join(std::move(parts), deciding);
  }

  // Combines conditions. If any of them is `deciding`, the result is `deciding`. If none is, but one is unknown, the result is unknown. If
  // all are the opposite of `deciding`, so is the result.
  static Condition join(std::vector<Condition> parts, Truth deciding) {
    if (parts.size() == 1) return std::move(parts[0]);
    return [parts = std::move(parts), deciding](Values& values) {
      Truth out = negate(deciding);
      const std::size_t before = values.unknown_field;
      for (const Condition& part : parts) {
        const Truth each = part(values);
        if (each == deciding) {
          values.unknown_field = before;
          return each;
        }
        if (each == Truth::unknown) out = each;
      }
      return out;
    };
  }

  static Condition negated(Condition inner) {
    return [inner = std::move(inner)](Values& values) { return negate(inner(values)); };
  }

  Condition negation() {
    if (++depth_ > kDeepestExpression) fail(token_.begin, "nested too deeply");
    Condition out = take_word("not") ? negated(negation()) : condition();
    --depth_;
    return out;
  }

  Condition condition() {
    if (take_sign("(")) {
      Condition out = any();
      if (!take_sign(")")) expected("\")\"");
      return out;
    }
    const Operand left = operand();
    if (take_word("is")) {
      const bool negative = take_word("not");
      if (!take_word("null")) expected("null");
      return [left, negative](Values& values) { return truth(is_missing(left.in(values)) != negative); };
    }
    if (take_word("not")) {
      if (!is_word("in")) expected("in");
      return negated(membership(left));
    }
    return is_word("in") ? membership(left) : comparisons(left);
  }

  Condition membership(const Operand& left) {
    take();  // in
    if (!take_sign("(")) expected("\"(\"");
    std::vector<Json> list;
    do {
      const Operand item = operand();
      if (item.field) expected("numbers and texts in the list");
      list.push_back(item.literal);
    } while (take_sign(","));
    if (!take_sign(")")) expected("\",\" or \")\"");
    return [left, list](Values& values) {
      const Json value = left.in(values);
      if (is_missing(value)) return left.noted(Truth::unknown, values);
      return truth(std::ranges::any_of(list, [&](const Json& item) { return compare(value, "==", item) == Truth::yes; }));
    };
  }

  // "0.5 <= aspect <= 2" means that both comparisons must hold.
  Condition comparisons(Operand left) {
    std::vector<Condition> out;
    while (token_.kind == Token::Kind::sign && token_.text != "(" && token_.text != ")" && token_.text != ",") {
      const std::string sign = token_.text == "=" ? "==" : token_.text == "<>" ? "!=" : token_.text;
      take();
      Operand right = operand();
      out.push_back([left, sign, right](Values& values) {
        // If the result is unknown, remembers the missing field, or else the first one.
        const Json a = left.in(values), b = right.in(values);
        const bool only_right = !left.field || (right.field && is_missing(b) && !is_missing(a));
        return (only_right ? right : left).noted(compare(a, sign, b), values);
      });
      left = std::move(right);
    }
    if (!out.empty()) return join(std::move(out), Truth::no);
    return [left](Values& values) {
      const Json value = left.in(values);
      if (value.is_number() && !is_missing(value)) return truth(value.get<double>() != 0);
      const auto flag = as_bool(value);
      return left.noted(flag ? truth(*flag) : Truth::unknown, values);
    };
  }

  Operand operand() {
    Operand out;
    const bool reserved = std::ranges::any_of(std::array{"and", "or", "not", "in", "is"}, [this](const char* word) { return is_word(word); });
    if (token_.kind == Token::Kind::number)
      out.literal = token_.value;
    else if (token_.kind == Token::Kind::text)
      out.literal = token_.text;
    else if (is_word("true") || is_word("false"))
      out.literal = is_word("true");
    else if (token_.kind == Token::Kind::field || (token_.kind == Token::Kind::word && !reserved && !is_word("null")))
      out.field = field(token_.text);
    else if (!is_word("null"))
      expected("a field, a number or a text");
    take();
    return out;
  }

  std::size_t field(const std::string& name) {
    const auto found = std::ranges::find(fields_, name);
    const auto place = static_cast<std::size_t>(found - fields_.begin());
    if (found == fields_.end()) fields_.push_back(name);
    return place;
  }

  const std::string& text_;
  std::size_t at_ = 0;
  std::vector<std::string>& fields_;
  Token token_;  // the next token
  int depth_ = 0;
};

}  // namespace

bool is_missing(const Json& value) {
  return value.is_null() || (value.is_number_float() && std::isnan(value.get<double>()));
}

FieldExpression::FieldExpression(const std::string& text) : condition_(Parser(text, fields_).parse()) {}

Truth FieldExpression::of(const std::function<Json(std::size_t)>& value, std::size_t* unknown_field) const {
  Values values{value};
  const Truth out = condition_(values);
  if (unknown_field != nullptr) *unknown_field = values.unknown_field;
  return out;
}

}  // namespace tessera
