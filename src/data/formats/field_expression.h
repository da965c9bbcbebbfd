#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace tessera {

/// SQL's three values: what a comparison with a missing value gives is unknown.
enum class Truth { no, yes, unknown };

/// A condition on a sample's side fields:
///
///   width >= 224 and similarity > 0.28 and language == 'en'
///   not (punsafe > 0.5) and 0.5 <= aspect <= 2 and format in ('jpeg', 'png') and `alt text` is not null
///
/// Operands are fields, numbers, texts in single or double quotes, true, false and null. Names of fields are words, with dots
/// into objects; others stand in back quotes. Comparisons are ==, =, !=, <>, <, <=, >, >=, in, not in, is null and is not null,
/// binding closer than not, and, or, whose capitals do not matter. Texts compare by bytes. A text beside a number counts as the
/// number that it writes; values of kinds that do not compare give unknown, as null and NaN do.
class FieldExpression {
 public:
  /// Throws UserError with the place of what it does not understand.
  explicit FieldExpression(const std::string& text);

  /// The names of its fields, each once.
  const std::vector<std::string>& fields() const { return fields_; }
  /// value: of a field, by its place in fields().
  Truth of(const std::function<nlohmann::json(std::size_t)>& value) const;

  struct Node;

 private:
  std::vector<std::string> fields_;
  std::shared_ptr<const Node> root_;
};

/// Null, or a number that is none.
bool is_missing(const nlohmann::json& value);

}  // namespace tessera
