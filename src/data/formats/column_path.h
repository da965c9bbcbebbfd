#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "src/data/formats/column_file.h"

namespace tessera {

/// A dotted name, split into a column and nested members. The name after the name of a list refers to a member of the list's items.
struct ColumnPath {
  std::string column;
  std::vector<std::string> below;
  Column::Kind kind = Column::Kind::other;  // kind of the last member, or of the column if `below` is empty
  std::string type;
};

/// Resolves a name with dots. Returns nullopt if there is no such column or member. A column with dots in its own name takes
/// precedence.
std::optional<ColumnPath> find_column(const std::vector<Column>& columns, const std::string& name);

/// Starts at `value`, follows the names below[from], below[from + 1], ... to a member, and returns the member's value. If a list is on the
/// path, the names are followed for each of its items, and the results form one list. Returns null if a member is missing.
nlohmann::json value_below(const nlohmann::json& value, const std::vector<std::string>& below, std::size_t from = 0);

/// Lists the names of at most 40 columns: "a, b and c".
std::string column_names(const std::vector<Column>& columns);

}  // namespace tessera
