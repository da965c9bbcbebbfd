#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "src/data/formats/column_file.h"

namespace tessera {

/// The target of a name with dots: a column, and members below it.
struct ColumnPath {
  std::string column;
  std::vector<std::string> below;
  Column::Kind kind = Column::Kind::other;  // of the target; lists on the way count as their items
  std::string type;
};

/// Resolves a name with dots. Returns nullopt if there is no such column or member. A column with dots in its own name takes
/// precedence.
std::optional<ColumnPath> find_column(const std::vector<Column>& columns, const std::string& name);

/// Returns the value at a path of members below a value. Lists on the way are mapped item by item, and the results form one
/// list. Null if a member is missing.
nlohmann::json value_below(const nlohmann::json& value, const std::vector<std::string>& below, std::size_t from = 0);

/// Lists the names of at most 40 columns: "a, b and c".
std::string column_names(const std::vector<Column>& columns);

}  // namespace tessera
