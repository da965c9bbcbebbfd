#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/data/formats/field_expression.h"
#include "src/data/formats/id_list.h"

namespace tessera {

/// What a filter says of a sample, and where it is `unknown` or `no_id` the field that it lacks.
struct FilterVerdict {
  enum Kind : std::uint8_t { passes, fails, unknown, not_listed, no_id, unreadable };
  Kind kind = passes;
  std::uint8_t field = 0;  // in RowFilter::fields()
};

/// A condition on side fields and a list of ids; a sample passes that both let pass. Thread-safe.
class RowFilter {
 public:
  /// expression, ids (a .npy): null: there is none. id_field: the side field that holds a sample's id. Throws UserError.
  RowFilter(const std::optional<std::string>& expression, const std::optional<std::string>& ids,
            const std::string& id_field);

  /// The fields that it looks at.
  const std::vector<std::string>& fields() const { return fields_; }
  /// value: of a field, by its place in fields(); null where a sample lacks it.
  FilterVerdict judge(const std::function<nlohmann::json(std::size_t)>& value) const;
  /// The same by a JSON object.
  FilterVerdict judge(const nlohmann::json& object) const;
  /// "filter width >= 224", as the settings have it.
  const std::string& described() const { return described_; }

 private:
  std::optional<FieldExpression> expression_;
  std::unique_ptr<const IdList> ids_;
  std::vector<std::string> fields_;
  std::size_t id_field_ = 0;
  std::string described_;
};

/// How many samples a filter lets pass, and why it does not the others.
class FilterCounts {
 public:
  explicit FilterCounts(const std::vector<std::string>& fields) : fields_(fields) {}

  void add(const FilterVerdict& verdict);
  std::int64_t passing() const { return passing_; }
  std::int64_t all() const;
  /// "777 pass filter ...: 200 do not, 23 have no similarity".
  std::string describe(const RowFilter& filter) const;
  /// A field that no sample has; empty: there is none.
  std::string field_of_none() const;

 private:
  std::vector<std::string> fields_;
  std::int64_t passing_ = 0, failing_ = 0, not_listed_ = 0, unreadable_ = 0;
  std::map<std::string, std::int64_t> lacking_;
};

/// A member of a JSON object, by its name, or with dots by those of the objects and lists of objects that lead to it.
nlohmann::json json_member(const nlohmann::json& object, const std::string& name);

}  // namespace tessera
