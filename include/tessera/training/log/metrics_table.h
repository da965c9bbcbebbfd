#pragma once

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace tessera {

/// metrics.csv: the rows of a run and its evaluations, with a column per number and one line per step. A number inside a group has
/// the column GROUP.NAME ("terms.loss_i2t"); unknown values are empty. When a new column appears, it is added to all lines, and
/// the file is rewritten through a temporary file.
class MetricsTable {
 public:
  explicit MetricsTable(std::string path) : path_(std::move(path)) {}

  /// Drops the lines of steps after this one. A missing file counts as empty. Throws UserError.
  void resume_at(std::int64_t step);
  /// Adds a row: an object with `step`. A second row of the same step is merged into the same line, which keeps its `time`. Throws
  /// UserError if the file cannot be written; its existing lines stay.
  void add(const nlohmann::ordered_json& row);

 private:
  using Fields = std::vector<std::string>;

  void append(const Fields& fields) const;
  /// Rewrites the file with new columns. `last` replaces the last line if in_place, else it is appended.
  void rewrite(const Fields& columns, const Fields& last, bool in_place) const;

  std::string path_;
  Fields columns_;
  Fields last_;  // the last line
};

}  // namespace tessera
