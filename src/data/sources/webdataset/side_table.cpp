#include "src/data/sources/webdataset/side_table.h"

#include <filesystem>
#include <vector>

#include "src/base/printable.h"
#include "src/data/formats/column_path.h"
#include <tessera/base/error.h>

namespace tessera {

SideTable judge_side_table(const std::string& shard, const RowFilter& filter) {
  const std::string path = std::filesystem::path(shard).replace_extension(".parquet").string();
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored) || !can_read_columns()) return {};
  const auto file = open_columns(path);
  std::vector<std::string> names = {"key"};
  std::vector<std::vector<std::string>> below;
  for (const std::string& field : filter.fields()) {
    const auto column = find_column(file->columns(), field);
    if (!column) return {};
    names.push_back(column->column);
    below.push_back(column->below);
  }
  if (!find_column(file->columns(), names[0])) return {};
  SideTable out;
  try {
    for (std::int64_t number = 0; number < std::ssize(file->group_rows()); ++number) {
      const auto group = file->read(number, names);
      for (std::int64_t row = 0; row < group->rows(); ++row)
        if (const auto key = group->bytes(0, row))
          out[std::string(*key)] =
              filter.judge([&](std::size_t field) { return value_below(group->json(field + 1, row), below[field]); });
    }
  } catch (const std::runtime_error& error) {
    user_error(path, ": cannot be read for the filter: ", printable(error.what()));
  }
  return out;
}

}  // namespace tessera
