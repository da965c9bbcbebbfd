#include <algorithm>

#include "src/base/printable.h"
#include "src/data/formats/column_file.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

const Column* column_named(const std::vector<Column>& columns, std::string_view name) {
  const auto found = std::ranges::find(columns, name, &Column::name);
  return found == columns.end() ? nullptr : &*found;
}

// Follows the names from a column to a member below it. Returns null if there is no such member.
const Column* member_of(const Column* column, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    while (column != nullptr && column->kind == Column::Kind::list) column = &column->members.at(0);
    if (column != nullptr) column = column_named(column->members, name);
  }
  return column;
}

}  // namespace

std::optional<ColumnPath> find_column(const std::vector<Column>& columns, const std::string& name) {
  for (std::size_t end = name.size(); end != std::string::npos && end > 0; end = name.rfind('.', end - 1)) {
    const Column* column = column_named(columns, std::string_view(name).substr(0, end));
    if (column == nullptr) continue;
    std::vector<std::string> below;
    if (end < name.size()) below = split(std::string_view(name).substr(end + 1), '.');
    if (const Column* there = member_of(column, below))
      return ColumnPath{column->name, below, there->kind, there->type};
  }
  return std::nullopt;
}

nlohmann::json value_below(const nlohmann::json& value, const std::vector<std::string>& below, std::size_t from) {
  if (from == below.size()) return value;
  if (value.is_array()) {
    nlohmann::json out = nlohmann::json::array();
    for (const nlohmann::json& each : value) {
      nlohmann::json found = value_below(each, below, from);
      if (!found.is_array())
        out.push_back(std::move(found));
      else
        for (nlohmann::json& item : found) out.push_back(std::move(item));
    }
    return out;
  }
  if (!value.is_object()) return nullptr;
  const auto found = value.find(below[from]);
  return found == value.end() ? nlohmann::json(nullptr) : value_below(*found, below, from + 1);
}

std::string column_names(const std::vector<Column>& columns) {
  constexpr std::size_t most = 40;
  std::vector<std::string> names;
  for (const Column& column : columns)
    if (names.size() < most) names.push_back(printable(column.name, 60));
  return names.empty() ? "none" : join_names(names);
}

}  // namespace tessera
