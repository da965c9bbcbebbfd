#include "src/data/formats/field_expression.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>

#include "src/base/printable.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {

using Json = nlohmann::json;

struct FieldExpression::Node {
  enum class Kind { field, literal, compare, in, is_null, negate, all, any };
  Kind kind = Kind::literal;
  std::size_t field = 0;
  Json literal;                 // the value of a literal, or the list of values of an `in` node
  std::string comparison = {};  // the comparison operator: ==, !=, <, <=, > or >=
  std::vector<Node> parts = {};
};

namespace {

using Node = FieldExpression::Node;
using Kind = Node::Kind;

constexpr int kDeepestExpression = 100;  // maximum nesting depth of parentheses and `not`

struct Token {
  enum class Kind { end, word, field, text, number, sign };
  Kind kind = Kind::end;
  std::string text;
  Json value = nullptr;  // the number, if kind is number
  std::size_t begin = 0;
};

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::optional<Json> parse_number(std::string_view text) {
  text = strip(text);
  std::int64_t whole = 0;
  const char *begin = text.data(), *end = begin + text.size();
  if (const auto result = std::from_chars(begin, end, whole); result.ec == std::errc() && result.ptr == end)
    return Json(whole);
  double number = 0;
  if (const auto result = std::from_chars(begin, end, number); result.ec == std::errc() && result.ptr == end)
    return Json(number);
  return std::nullopt;
}

class Tokenizing {
 public:
  explicit Tokenizing(const std::string& text) : text_(text) {}

  Token next() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    Token token;
    token.begin = at_;
    if (at_ == text_.size()) return token;
    const char c = text_[at_];
    if (c == '\'' || c == '"' || c == '`') return quoted(c, token);
    if (is_digit(c) ||
        ((c == '-' || c == '.') && at_ + 1 < text_.size() && (is_digit(text_[at_ + 1]) || text_[at_ + 1] == '.')))
      return number(token);
    if (is_word(c)) {
      token.kind = Token::Kind::word;
      while (at_ < text_.size() && (is_word(text_[at_]) || is_digit(text_[at_]) || text_[at_] == '.'))
        token.text += text_[at_++];
      return token;
    }
    token.kind = Token::Kind::sign;
    for (const char* sign : {"==", "!=", "<>", "<=", ">=", "=", "<", ">", "(", ")", ","})
      if (text_.compare(at_, std::string_view(sign).size(), sign) == 0) {
        token.text = sign;
        at_ += token.text.size();
        return token;
      }
    fail(at_, concat("\"", printable(std::string(1, c)), "\" is not understood"));
  }

  [[noreturn]] void fail(std::size_t place, const std::string& problem) const {
    user_error("filter \"", printable(text_, 300), "\": at character ", place + 1, ": ", problem);
  }

 private:
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  static bool is_word(char c) {
    return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_' || static_cast<unsigned char>(c) >= 0x80;
  }

  // Reads a text in quotes. A quote inside the text is doubled.
  Token quoted(char quote, Token token) {
    token.kind = quote == '`' ? Token::Kind::field : Token::Kind::text;
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] == quote && (at_ + 1 == text_.size() || text_[at_ + 1] != quote)) {
        ++at_;
        return token;
      }
      if (text_[at_] == quote) ++at_;
      token.text += text_[at_];
    }
    fail(token.begin, "the quote that opens here is never closed");
  }

  Token number(Token token) {
    token.kind = Token::Kind::number;
    const auto belongs = [this](char c) {
      const bool sign = (c == '-' || c == '+') && (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E');
      return is_digit(c) || c == '.' || is_word(c) || sign;
    };
    token.text = text_[at_++];
    while (at_ < text_.size() && belongs(text_[at_])) token.text += text_[at_++];
    const auto value = parse_number(token.text);
    if (!value) fail(token.begin, concat("\"", printable(token.text, 60), "\" is not a number"));
    token.value = *value;
    return token;
  }

  const std::string& text_;
  std::size_t at_ = 0;
};

class Parser {
 public:
  Parser(const std::string& text, std::vector<std::string>& names) : tokens_(text), fields_(names) { take(); }

  Node parse() {
    Node out = any();
    if (token_.kind != Token::Kind::end) expected("and, or, or the end");
    return out;
  }

 private:
  void take() { token_ = tokens_.next(); }
  bool is_word(const char* word) const { return token_.kind == Token::Kind::word && lower_case(token_.text) == word; }
  bool is_sign(const char* sign) const { return token_.kind == Token::Kind::sign && token_.text == sign; }
  bool take_word(const char* word) {
    const bool there = is_word(word);
    if (there) take();
    return there;
  }
  bool take_sign(const char* sign) {
    const bool there = is_sign(sign);
    if (there) take();
    return there;
  }

  [[noreturn]] void expected(const std::string& what) const {
    tokens_.fail(token_.begin,
                 concat("expected ", what, ", got ",
                        token_.kind == Token::Kind::end ? "the end" : concat("\"", printable(token_.text, 60), "\"")));
  }

  Node any() {
    return joined(Kind::any, "or", [this] { return all(); });
  }
  Node all() {
    return joined(Kind::all, "and", [this] { return negation(); });
  }

  template <class Part>
  Node joined(Kind kind, const char* word, const Part& part) {
    Node first = part();
    if (!is_word(word)) return first;
    Node out{kind};
    out.parts.push_back(std::move(first));
    while (take_word(word)) out.parts.push_back(part());
    return out;
  }

  static Node negated(Node inner) {
    Node out{Kind::negate};
    out.parts.push_back(std::move(inner));
    return out;
  }

  Node negation() {
    if (++depth_ > kDeepestExpression) tokens_.fail(token_.begin, "nested too deeply");
    Node out = take_word("not") ? negated(negation()) : condition();
    --depth_;
    return out;
  }

  Node condition() {
    if (take_sign("(")) {
      Node out = any();
      if (!take_sign(")")) expected("\")\"");
      return out;
    }
    Node left = operand();
    if (take_word("is")) {
      const bool negative = take_word("not");
      if (!take_word("null")) expected("null");
      Node out{Kind::is_null};
      out.parts.push_back(std::move(left));
      return negative ? negated(std::move(out)) : out;
    }
    if (take_word("not")) {
      if (!is_word("in")) expected("in");
      return negated(membership(std::move(left)));
    }
    return is_word("in") ? membership(std::move(left)) : comparisons(std::move(left));
  }

  Node membership(Node left) {
    take();  // in
    if (!take_sign("(")) expected("\"(\"");
    Node out{Kind::in};
    out.literal = Json::array();
    do {
      const Node item = operand();
      if (item.kind != Kind::literal) expected("numbers and texts in the list");
      out.literal.push_back(item.literal);
    } while (take_sign(","));
    if (!take_sign(")")) expected("\",\" or \")\"");
    out.parts.push_back(std::move(left));
    return out;
  }

  // "0.5 <= aspect <= 2" means that both comparisons must hold.
  Node comparisons(Node left) {
    Node out{Kind::all};
    while (const auto comparison = take_comparison()) {
      Node right = operand();
      Node each{Kind::compare};
      each.comparison = *comparison;
      each.parts = {left, right};
      out.parts.push_back(std::move(each));
      left = std::move(right);
    }
    if (out.parts.empty()) return left;
    return out.parts.size() == 1 ? Node(out.parts[0]) : out;
  }

  std::optional<std::string> take_comparison() {
    if (token_.kind != Token::Kind::sign || token_.text == "(" || token_.text == ")" || token_.text == ",")
      return std::nullopt;
    const std::string sign = token_.text;
    take();
    return sign == "=" ? "==" : sign == "<>" ? "!=" : sign;
  }

  Node operand() {
    Node out;
    if (token_.kind == Token::Kind::number)
      out.literal = token_.value;
    else if (token_.kind == Token::Kind::text)
      out.literal = token_.text;
    else if (is_word("true") || is_word("false"))
      out.literal = is_word("true");
    else if (is_word("null"))
      out.literal = nullptr;
    else if (token_.kind == Token::Kind::field || (token_.kind == Token::Kind::word && !is_reserved()))
      out = field(token_.text);
    else
      expected("a field, a number or a text");
    take();
    return out;
  }

  bool is_reserved() const {
    return std::ranges::any_of(std::array{"and", "or", "not", "in", "is"},
                               [this](const char* word) { return is_word(word); });
  }

  Node field(const std::string& name) {
    Node out{Kind::field};
    const auto found = std::ranges::find(fields_, name);
    out.field = static_cast<std::size_t>(found - fields_.begin());
    if (found == fields_.end()) fields_.push_back(name);
    return out;
  }

  Tokenizing tokens_;
  std::vector<std::string>& fields_;
  Token token_;
  int depth_ = 0;
};

Truth truth(bool value) {
  return value ? Truth::yes : Truth::no;
}

Truth negation_of(Truth value) {
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
  if (value.is_number_float()) return value.get<double>();
  return std::nullopt;
}

// Returns a number below zero if a < b, zero if a = b, above zero if a > b; nullopt if the values are not comparable.
std::optional<int> order_of(const Json& a, const Json& b) {
  if (is_missing(a) || is_missing(b)) return std::nullopt;
  if (a.is_string() && b.is_string()) {
    const int order = a.get_ref<const std::string&>().compare(b.get_ref<const std::string&>());
    return order;
  }
  if (a.is_boolean() || b.is_boolean()) {
    const auto left = as_bool(a), right = as_bool(b);
    return left && right ? std::optional(static_cast<int>(*left) - static_cast<int>(*right)) : std::nullopt;
  }
  const auto left = as_number(a), right = as_number(b);
  if (!left || !right || std::isnan(*left) || std::isnan(*right)) return std::nullopt;
  return *left < *right ? -1 : *left > *right ? 1 : 0;
}

Truth compare(const Json& a, const std::string& comparison, const Json& b) {
  const auto order = order_of(a, b);
  if (!order) return Truth::unknown;
  if (comparison == "==") return truth(*order == 0);
  if (comparison == "!=") return truth(*order != 0);
  if (comparison == "<") return truth(*order < 0);
  if (comparison == "<=") return truth(*order <= 0);
  return truth(comparison == ">" ? *order > 0 : *order >= 0);
}

class Evaluation {
 public:
  explicit Evaluation(const std::function<Json(std::size_t)>& value) : value_(value) {}

  Truth of(const Node& node) {
    switch (node.kind) {
      case Kind::all:
        return joined(node, Truth::no);
      case Kind::any:
        return joined(node, Truth::yes);
      case Kind::negate:
        return negation_of(of(node.parts[0]));
      case Kind::is_null:
        return truth(is_missing(operand(node.parts[0])));
      case Kind::compare:
        return comparison(node.parts[0], node.comparison, node.parts[1]);
      case Kind::in:
        return noted(membership(operand(node.parts[0]), node.literal), node.parts[0]);
      case Kind::field:
      case Kind::literal:
        break;
    }
    const Json value = operand(node);
    if (value.is_number() && !is_missing(value)) return truth(value.get<double>() != 0);
    const auto flag = as_bool(value);
    return noted(flag ? truth(*flag) : Truth::unknown, node);
  }

  // Returns the field that makes the result unknown.
  std::size_t unknown_field() const { return unknown_field_; }

 private:
  Json operand(const Node& node) const { return node.kind == Kind::field ? value_(node.field) : node.literal; }

  // Combines the truth values of a node's parts. If any part is `deciding`, the result is `deciding`. If no part is `deciding` but
  // a part is unknown, the result is unknown. If all parts are the opposite of `deciding`, so is the result.
  Truth joined(const Node& node, Truth deciding) {
    Truth out = negation_of(deciding);
    const std::size_t before = unknown_field_;
    for (const Node& part : node.parts) {
      const Truth each = of(part);
      if (each == deciding) {
        unknown_field_ = before;
        return each;
      }
      if (each == Truth::unknown) out = each;
    }
    return out;
  }

  // If the result is unknown, remembers the missing field, or else the first one.
  Truth comparison(const Node& left, const std::string& sign, const Node& right) {
    const Json a = operand(left), b = operand(right);
    const bool only_right = left.kind != Kind::field || (right.kind == Kind::field && is_missing(b) && !is_missing(a));
    return noted(compare(a, sign, b), only_right ? right : left);
  }

  Truth noted(Truth result, const Node& of) {
    if (result == Truth::unknown && of.kind == Kind::field) unknown_field_ = of.field;
    return result;
  }

  static Truth membership(const Json& value, const Json& list) {
    Truth out = Truth::no;
    for (const Json& item : list) {
      const Truth equal = compare(value, "==", item);
      if (equal == Truth::yes) return equal;
      if (is_missing(value)) out = Truth::unknown;
    }
    return out;
  }

  const std::function<Json(std::size_t)>& value_;
  std::size_t unknown_field_ = 0;
};

}  // namespace

bool is_missing(const Json& value) {
  return value.is_null() || (value.is_number_float() && std::isnan(value.get<double>()));
}

FieldExpression::FieldExpression(const std::string& text)
    : root_(std::make_shared<const Node>(Parser(text, fields_).parse())) {}

Truth FieldExpression::of(const std::function<Json(std::size_t)>& value, std::size_t* unknown_field) const {
  Evaluation evaluation(value);
  const Truth out = evaluation.of(*root_);
  if (unknown_field != nullptr) *unknown_field = evaluation.unknown_field();
  return out;
}

}  // namespace tessera
