#include "src/data/formats/table.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <string_view>

#include "src/base/printable.h"
#include "src/io/stand_in.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

constexpr int kEnd = std::char_traits<char>::eof();

std::string separator_text(char separator) {
  return separator == '\t' ? "a tab" : concat("\"", separator, "\"");
}

}  // namespace

char separator_of(const std::string& setting) {
  if (setting == "tab" || setting == "\\t") return '\t';
  if (setting == "comma") return ',';
  if (setting.size() != 1 || setting == "\"" || setting == "\n" || setting == "\r")
    user_error("separator: expected one character, tab or comma, got \"", setting, "\"");
  return setting[0];
}

Table::Table(const std::string& path, char separator) : path_(path), local_(path), separator_(separator) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) user_error(path, ": expected a file, got a folder");
  file_.open(local_.path(), std::ios::binary);
  if (!file_) user_error(path, ": cannot be opened: ", std::strerror(errno));
  if (file_.peek() == 0xFF || file_.peek() == 0xFE) user_error(path, ": is UTF-16; expected UTF-8: convert it first");
  if (file_.peek() == 0xEF)  // the byte order mark of UTF-8
    for (int i = 0; i < 3; ++i) file_.get();
  if (!read_row(columns_)) user_error(path, ": is empty; expected a first line that names the columns");
  if (const std::string text = io::describe_stand_in(columns_.front()); !text.empty()) user_error(path, ": is not a table: ", text);
  for (std::string& name : columns_) name = std::string(strip(name));
  std::set<std::string_view> seen;
  for (const std::string& name : columns_)
    if (!seen.insert(name).second) user_error(path, ":1: two columns are named ", name.empty() ? "\"\"" : printable(name));
}

std::size_t Table::column(const std::string& name, const std::string& setting) const {
  if (const auto found = std::ranges::find(columns_, name); found != columns_.end()) return static_cast<std::size_t>(found - columns_.begin());
  std::string hint;
  for (const char other : {',', '\t', ';', '|'})
    if (columns_.size() == 1 && other != separator_ && columns_[0].find(other) != std::string::npos)
      hint = concat("; the line holds ", separator_text(other), ", the separator is ", separator_text(separator_), ": set separator");
  user_error(path_, ": has no column ", name, " (", setting, "); its columns are: ", printable(join_names(columns_), 1000), hint);
}

bool Table::next(std::vector<std::string>& row, std::string* problem) {
  if (!read_row(row)) return false;
  std::string found;
  if (row.size() > columns_.size())
    found = concat(path_, ":", row_line_, ": has ", row.size(), " fields, but there are ", columns_.size(), " columns; a field that holds ",
                   separator_text(separator_), " must be in double quotes");
  if (problem == nullptr && !found.empty()) throw UserError(found);
  if (problem != nullptr) *problem = std::move(found);
  row.resize(columns_.size());
  return true;
}

int Table::take() {
  const int c = file_.rdbuf()->sbumpc();
  if (c == '\n') ++line_;
  return c;
}

// Reads the rest of a quoted field, up to and including the closing quote. The caller has read the opening quote.
void Table::read_quoted(std::string& field) {
  const std::int64_t begin = line_;
  while (true) {
    const int c = take();
    if (c == kEnd) user_error(path_, ":", begin, ": the double quote that opens here is never closed");
    if (c == '"') {
      if (file_.rdbuf()->sgetc() != '"') return;
      take();
    }
    field += static_cast<char>(c);
  }
}

bool Table::read_row(std::vector<std::string>& row) {
  row.assign(1, {});
  row_line_ = line_;
  bool quoted = false;
  while (true) {
    const int c = take();
    std::string& field = row.back();
    if (c == '\r' && file_.rdbuf()->sgetc() == '\n') continue;
    if (c == '"' && field.empty()) {
      read_quoted(field);
      quoted = true;
    } else if (c == separator_) {
      row.emplace_back();
    } else if (c == '\n' || c == kEnd) {
      const bool empty = row.size() == 1 && field.empty() && !quoted;
      if (!empty) return true;
      if (c == kEnd) return false;
      row_line_ = line_;
    } else {
      field += static_cast<char>(c);
    }
  }
}

}  // namespace tessera
