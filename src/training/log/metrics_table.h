#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace tessera {

/// Writes metrics.csv, a table of a run's logged values and evaluation results, with one column per number and one line per step. The
/// column of a number inside a group is GROUP.NAME ("terms.loss_i2t"); unknown values are empty. When a new column appears, it is added to
/// all lines, and the file is rewritten through a temporary file.
class MetricsTable {
 public:
  explicit MetricsTable(std::string path) : path_(std::move(path)) {}

  /// Drops the lines of steps after `step`. A missing file counts as empty. Throws UserError if the file cannot be read or written.
  void resume_at(std::int64_t step);
  /// Adds a row, which is a JSON object with the key `step`. A second row of the same step is merged into that step's line, which keeps its
  /// `time`. Throws UserError if the file cannot be written; the existing lines stay unchanged.
  void add(const nlohmann::ordered_json& row);

 private:
  std::string path_;
  std::vector<std::string> columns_, last_;  // last_: the fields of the file's last line
};

}  // namespace tessera
