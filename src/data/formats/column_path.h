#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "src/data/formats/column_file.h"

namespace tessera {

/// Where a name with dots leads: a column, and members below it.
struct ColumnPath {
  std::string column;
  std::vector<std::string> below;
  Column::Kind kind = Column::Kind::other;  // of what stands there; lists on the way count as their items
  std::string type;
};

/// Nothing where no column has this name, or is no structure with such a member. A column whose own name holds dots goes first.
std::optional<ColumnPath> find_column(const std::vector<Column>& columns, const std::string& name);

/// What stands below a value: members of objects, and of lists those of each item, as one list. Null where there is none.
nlohmann::json value_below(const nlohmann::json& value, const std::vector<std::string>& below, std::size_t from = 0);

/// "a, b and c", at most 40 of them.
std::string column_names(const std::vector<Column>& columns);

}  // namespace tessera
