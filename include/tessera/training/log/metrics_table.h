#pragma once

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace tessera {

/// metrics.csv: the rows of a run and its evaluations with a column for each number, one line a step. A number within a
/// group stands under both names ("terms.loss_i2t"); what is not known at a step is empty. A column that comes later is
/// added to all lines: the file is then written anew, aside first.
class MetricsTable {
 public:
  explicit MetricsTable(std::string path) : path_(std::move(path)) {}

  /// Keeps what the file holds of steps up to this one. Without a file there is none to keep. Throws UserError.
  void resume_at(std::int64_t step);
  /// Adds a row: an object with `step`. Another of the same step fills in the same line, which keeps its `time`. Throws
  /// UserError when the file cannot be written; the lines that it holds stay.
  void add(const nlohmann::ordered_json& row);

 private:
  using Fields = std::vector<std::string>;

  void append(const Fields& fields) const;
  /// The header anew, all lines as wide as it; `last` in place of the last line, or after it.
  void rewrite(const Fields& columns, const Fields& last, bool in_place) const;

  std::string path_;
  Fields columns_;
  Fields last_;  // of the last line
};

}  // namespace tessera
