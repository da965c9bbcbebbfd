#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/report/compared_run.h"

namespace tessera::report {

struct PaperSettings {
  /// "TASK.METRIC=Heading" or, if the task was measured on several data, "TASK[part of the data's description].METRIC=Heading". The heading
  /// may be left out; in LaTeX it is written as it is. Empty: the main metrics of all tasks.
  std::vector<std::string> columns;
  std::string baseline;              // the row with which the others are compared; empty: none
  std::vector<std::string> ignored;  // settings in which the runs of one row may differ, apart from the seed
  int digits = 1;                    // digits after the point of a percentage
};

/// The table of a paper. A row consists of the runs that differ only in their seed. Shares are in percent.
struct PaperTable {
  struct Column {
    std::string task, data, metric;
    std::string heading;  // the user's; empty: default_heading()
    std::string default_heading;
    MetricRule meaning;
    int decimals = 1;
  };
  struct Cell {
    std::size_t runs = 0;  // number of runs with a value
    double mean = 0;       // over these runs
    /// With several runs, the 95 % t-interval of the mean over seeds. With one, the bootstrap interval over samples in its results.
    std::optional<Interval> interval = {};
    bool best = false;
    // Whether the row differs from the baseline; nullopt if this could not be tested
    std::optional<bool> differs_over_samples = {};  // by a paired bootstrap over the test samples, with the means over seeds
    std::optional<bool> differs_over_seeds = {};    // by a paired t-test over the seeds that both rows have
  };
  struct Row {
    std::string name;
    std::vector<std::size_t> runs;   // indices
    std::vector<std::string> seeds;  // of these runs; empty if the runs have no configuration
    std::vector<Cell> cells;         // one per column
  };
  std::vector<Column> columns;
  std::vector<Row> rows;
  std::string baseline;
  std::vector<std::string> notes;  // sentences: what the numbers mean, and what is missing
};

/// Returns the 95 % interval of the mean of independent values by Student's t distribution: mean +- t(0.975, n - 1) s / sqrt(n). Returns
/// nothing if there are fewer than two values.
std::optional<Interval> t_interval(const std::vector<double>& values);

/// Throws UserError if a column or the baseline does not exist, or if two runs with the same settings have the same seed.
PaperTable paper_table(const std::vector<ComparedRun>& runs, const PaperSettings& settings);

std::string paper_markdown(const PaperTable& table);

/// Returns a tabular for the package booktabs. The notes are comments above it.
std::string paper_latex(const PaperTable& table);

/// Returns the numbers in full precision, with their intervals, numbers of runs and tests in columns of their own.
std::string paper_csv(const PaperTable& table);

}  // namespace tessera::report
