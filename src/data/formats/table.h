#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace tessera {

/// The character that a setting names: itself, or "tab", "\t", "comma". Throws UserError for anything longer.
char separator_of(const std::string& setting);

/// Rows of a text table (RFC 4180 with any separator): the first line names the columns; a field in double quotes may
/// hold separators, line ends and, doubled, quotes; lines end with LF or CRLF; a byte order mark and empty lines are
/// passed over.
class Table {
 public:
  /// Throws UserError: no such file, UTF-16, no header, a column twice.
  Table(const std::string& path, char separator);

  const std::vector<std::string>& columns() const { return columns_; }

  /// Number of the column of this name. `setting` is what asks for it, for the message. Throws UserError naming the
  /// columns that are there.
  std::size_t column(const std::string& name, const std::string& setting) const;

  /// The next row, with as many fields as there are columns (missing ones at its end are empty); false at the end.
  /// Throws UserError naming the line: too many fields, a quote that is not closed.
  bool next(std::vector<std::string>& row);

  /// Line of the file where the last row begins, from 1.
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
