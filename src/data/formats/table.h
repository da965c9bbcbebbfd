#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "src/remote/store.h"

namespace tessera {

/// Returns the separator that a setting names. The setting is the character itself, "tab", "\t" or "comma". Throws UserError for any
/// other setting.
char separator_of(const std::string& setting);

/// Reads a text table (RFC 4180 with any separator). The first line names the columns. A field in double quotes may hold
/// separators, line ends and doubled quotes. Lines end with LF or CRLF. A byte order mark and empty lines are skipped.
class Table {
 public:
  /// The file may be remote. Throws UserError if the file is missing, is UTF-16, has no header, or has two columns of the same name.
  Table(const std::string& path, char separator);

  const std::vector<std::string>& columns() const { return columns_; }

  /// Returns the index of the column `name`. If there is no such column, throws UserError with the existing columns and with
  /// `setting`, which is the setting that asks for the column.
  std::size_t column(const std::string& name, const std::string& setting) const;

  /// Reads the next row, with one field per column. Fields that are missing at the end of the row are empty. Returns false at
  /// the end of the file. Throws UserError naming the line if there are too many fields or an unclosed quote. With `problem`, too many
  /// fields are no error: the surplus ones are dropped, and `problem` is set to the message, or to an empty text for other rows.
  bool next(std::vector<std::string>& row, std::string* problem = nullptr);

  /// Returns the line of the file, counted from 1, where the last row starts.
  std::int64_t line() const { return row_line_; }

 private:
  bool read_row(std::vector<std::string>& row);
  void read_quoted(std::string& field);
  int take();

  std::string path_;
  remote::LocalFile local_;
  char separator_;
  std::ifstream file_;
  std::vector<std::string> columns_;
  std::int64_t line_ = 1;
  std::int64_t row_line_ = 1;
};

}  // namespace tessera
