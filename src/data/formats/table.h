#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace tessera {

/// Returns the character that a setting names: the character itself, or "tab", "\t", "comma". Throws UserError for anything else.
char separator_of(const std::string& setting);

/// Reads a text table (RFC 4180 with any separator). The first line names the columns. A field in double quotes may hold
/// separators, line ends and doubled quotes. Lines end with LF or CRLF. A byte order mark and empty lines are skipped.
class Table {
 public:
  /// Throws UserError if the file is missing, is UTF-16, or has no header or a duplicate column.
  Table(const std::string& path, char separator);

  const std::vector<std::string>& columns() const { return columns_; }

  /// Returns the index of the column of this name. `setting` is the setting that names it, for the message. Throws UserError
  /// that lists the existing columns.
  std::size_t column(const std::string& name, const std::string& setting) const;

  /// Reads the next row, with one field per column (missing ones at its end are empty). Returns false at the end of the file.
  /// Throws UserError naming the line if there are too many fields or an unclosed quote.
  bool next(std::vector<std::string>& row);

  /// The line of the file where the last row starts, from 1.
  std::int64_t line() const { return row_line_; }

 private:
  bool read_row(std::vector<std::string>& row);
  void read_quoted(std::string& field);
  int take();

  std::string path_;
  char separator_;
  std::ifstream file_;
  std::vector<std::string> columns_;
  std::int64_t line_ = 1;
  std::int64_t row_line_ = 1;
};

}  // namespace tessera
