#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace tessera {

/// SQL's three truth values. The result of a comparison with a missing value is `unknown`.
enum class Truth { no, yes, unknown };

/// A condition on a sample's side fields:
///
///   width >= 224 and similarity > 0.28 and language == 'en'
///   not (punsafe > 0.5) and 0.5 <= aspect <= 2 and format in ('jpeg', 'png') and `alt text` is not null
///
/// Operands are fields, numbers, texts in single or double quotes, true, false and null. Field names are words, with dots for members of
/// objects; any other name must be in back quotes. Comparisons are ==, =, !=, <>, <, <=, >, >=, in, not in, is null and is not null.
/// Comparisons bind more tightly than not, and, or. Keywords are not case-sensitive. Texts are compared by bytes. A text that is compared
/// with a number is converted to a number. The result is unknown if a value is null or NaN, or if the values are not comparable.
class FieldExpression {
 public:
  /// Throws UserError with the position of the syntax error.
  explicit FieldExpression(const std::string& text);

  /// Returns the names of the fields that the condition uses, each once.
  const std::vector<std::string>& fields() const { return fields_; }
  /// Evaluates the condition. `value` returns the value of a field, given its index in fields(). If the result is unknown, sets
  /// `unknown_field` to the index of the last field that is missing or not comparable.
  Truth of(const std::function<nlohmann::json(std::size_t)>& value, std::size_t* unknown_field = nullptr) const;

  /// The values of one sample's fields, and the field that makes the result unknown.
  struct Values {
    const std::function<nlohmann::json(std::size_t)>& of;
    std::size_t unknown_field = 0;
  };
  using Condition = std::function<Truth(Values&)>;

 private:
  std::vector<std::string> fields_;
  Condition condition_;
};

/// Returns whether a value is null or NaN.
bool is_missing(const nlohmann::json& value);

}  // namespace tessera
