#include "src/training/log/metrics_table.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

using NamedFields = std::vector<std::pair<std::string, std::string>>;

// Replaces the characters that would force a CSV field to be quoted.
std::string table_cell(std::string text) {
  for (char& c : text)
    if (c == ',' || c == '"' || c == '\n' || c == '\r') c = '_';
  return text;
}

void add_cells(const std::string& name, const nlohmann::ordered_json& value, NamedFields& out) {
  if (value.is_object()) {
    for (const auto& [part, inner] : value.items()) add_cells(name.empty() ? part : name + "." + part, inner, out);
  } else if (value.is_string()) {
    out.emplace_back(table_cell(name), table_cell(value.get<std::string>()));
  } else if (!value.is_array()) {
    out.emplace_back(table_cell(name), value.is_null() ? "" : value.dump());
  }
}

std::string line_of(const std::vector<std::string>& fields) {
  std::string line;
  for (const std::string& field : fields) line += (&field == &fields.front() ? "" : ",") + field;
  return line + "\n";
}

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  if (!std::filesystem::exists(path)) return lines;
  for (std::string& line : split(io::read_file(path), '\n'))
    if (!line.empty()) lines.push_back(std::move(line));
  return lines;
}

}  // namespace

void MetricsTable::resume_at(std::int64_t step) {
  columns_.clear();
  last_.clear();
  const std::vector<std::string> lines = lines_of(path_);
  if (lines.empty()) return;
  std::string kept, last;
  for (auto line = lines.begin() + 1; line != lines.end(); ++line) {
    char* end = nullptr;
    const long long own = std::strtoll(line->c_str(), &end, 10);
    if (step > 0 && end != line->c_str() && *end == ',' && own <= step) kept += (last = *line) + "\n";
  }
  io::write_file(path_, kept.empty() ? "" : lines.front() + "\n" + kept);
  if (last.empty()) return;
  columns_ = split(lines.front(), ',');
  last_ = split(last, ',');
}

void MetricsTable::add(const nlohmann::ordered_json& row) {
  NamedFields cells;
  add_cells("", row, cells);
  std::vector<std::string> columns = columns_;
  for (const auto& [name, value] : cells)
    if (!contains(columns, name)) columns.push_back(name);
  const bool again = !last_.empty() && last_.front() == row.at("step").dump();
  std::vector<std::string> fields = again ? last_ : std::vector<std::string>{};
  fields.resize(columns.size());
  for (const auto& [name, value] : cells) {
    std::string& field = fields[static_cast<std::size_t>(std::ranges::find(columns, name) - columns.begin())];
    // The row keeps the time at which the step ended, although an evaluation of the same step ends later.
    const bool stays = name == "time" && !field.empty();
    if (!value.empty() && !stays) field = value;
  }
  if (again || columns.size() > columns_.size()) {
    std::vector<std::string> lines = lines_of(path_);
    if (!lines.empty()) lines.erase(lines.begin());
    if (again && !lines.empty()) lines.pop_back();
    std::string text = line_of(columns);
    for (const std::string& line : lines) text += line + std::string(columns.size() - columns_.size(), ',') + "\n";
    io::write_file(path_, text + line_of(fields));
  } else if (!(std::ofstream(path_, std::ios::app) << line_of(fields) << std::flush)) {
    user_error(path_, ": cannot write: ", std::strerror(errno));
  }
  columns_ = std::move(columns);
  last_ = std::move(fields);
}

}  // namespace tessera
