#include "src/report/paper_table.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <numbers>
#include <numeric>
#include <regex>
#include <set>
#include <tuple>

#include <nlohmann/json.hpp>

#include "src/report/comparison.h"
#include "src/report/markdown_table.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::report {
namespace {

using Column = PaperTable::Column;
using Cell = PaperTable::Cell;
using Row = PaperTable::Row;

constexpr double kConfidence = 0.95;
constexpr const char* kSamplesMark = "†";
constexpr const char* kSeedsMark = "‡";

/// Returns the probability that a value of Student's t distribution is within -t .. t (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4).
double t_probability(double t, std::size_t freedom) {
  const double angle = std::atan(t / std::sqrt(static_cast<double>(freedom)));
  const double cosine = std::cos(angle), sine = std::sin(angle);
  const bool odd = freedom % 2 == 1;
  double sum = 0, term = odd ? cosine : 1;
  for (std::size_t k = odd ? 1 : 0; k + 2 <= freedom; k += 2) {
    sum += term;
    term *= cosine * cosine * static_cast<double>(k + 1) / static_cast<double>(k + 2);
  }
  return odd ? 2 / std::numbers::pi * (angle + sine * sum) : sine * sum;
}

double t_quantile(std::size_t freedom) {
  double low = 0, high = 100;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (t_probability(middle, freedom) < kConfidence ? low : high) = middle;
  }
  return low;
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

bool excludes_zero(const Interval& interval) {
  return interval.low > 0 || interval.high < 0;
}

/// Returns a run's name without its seed: "clip" for "clip_seed0" and for "clip/seed0".
std::string without_seed(const ComparedRun& run) {
  static const std::regex seed("[-_/. ]*seed[-_=]?[0-9]*$", std::regex::icase);
  const std::string name = std::regex_replace(run.name, seed, "");
  if (!name.empty()) return name;
  const std::string parent = std::filesystem::weakly_canonical(run.folder).parent_path().filename().string();
  return parent.empty() ? run.name : parent;
}

/// Returns what the names of a row's runs have in common, without separators and cut numbers at its end.
std::string common_name(const std::vector<std::string>& names) {
  std::size_t length = names.front().size();
  const auto digit_at = [](const std::string& name, std::size_t place) {
    return place < name.size() && name[place] >= '0' && name[place] <= '9';
  };
  for (const std::string& name : names)
    length = std::min<std::size_t>(length, static_cast<std::size_t>(std::ranges::mismatch(name, names.front()).in1 - name.begin()));
  const bool cut = std::ranges::any_of(names, [&](const std::string& name) { return digit_at(name, length); });
  while (cut && length > 0 && digit_at(names.front(), length - 1)) --length;
  if (length < names.front().size())
    while (length > 0 && std::string_view("-_/. ").find(names.front()[length - 1]) != std::string_view::npos) --length;
  return length == 0 ? names.front() : names.front().substr(0, length);
}

/// Returns the settings that the runs of one row have in common. A run without configuration has only its own folder in common with itself.
std::vector<std::pair<std::string, std::string>> row_key(const ComparedRun& run, const std::vector<std::string>& ignored) {
  if (run.settings.empty()) return {{"folder", run.folder}};
  std::vector<std::pair<std::string, std::string>> key = run.settings;
  std::erase_if(key, [&](const auto& setting) {
    return setting.first == "seed" || contains(ignored, setting.first);
  });
  return key;
}

void refuse_equal_seeds(const Row& row, const std::vector<ComparedRun>& runs) {
  for (std::size_t i = 0; i < row.seeds.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (row.seeds[i] == row.seeds[j])
        user_error(runs[row.runs[j]].folder, " and ", runs[row.runs[i]].folder, ": have the same settings and the same seed ", row.seeds[i],
                   ", so they do not count as two runs: leave one of them out");
}

/// Groups the runs, in the order of their first runs.
std::vector<Row> group_runs(const std::vector<ComparedRun>& runs, const std::vector<std::string>& ignored) {
  std::vector<Row> rows;
  std::map<std::vector<std::pair<std::string, std::string>>, std::size_t> places;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto [place, is_new] = places.emplace(row_key(runs[i], ignored), rows.size());
    if (is_new) rows.emplace_back();
    Row& row = rows[place->second];
    row.runs.push_back(i);
    if (const std::string* seed = runs[i].setting("seed")) row.seeds.push_back(*seed);
  }
  std::map<std::string, int> uses;
  for (Row& row : rows) {
    refuse_equal_seeds(row, runs);
    std::vector<std::string> names;
    for (const std::size_t run : row.runs) names.push_back(without_seed(runs[run]));
    ++uses[row.name = common_name(names)];
  }
  for (Row& row : rows)
    if (uses[row.name] > 1) row.name = runs[row.runs.front()].name;
  return rows;
}

/// Says why runs whose names differ only in the seed have rows of their own.
void note_on_splits(const std::vector<Row>& rows, const std::vector<ComparedRun>& runs, const std::vector<std::string>& ignored,
                    std::vector<std::string>& notes) {
  std::map<std::string, std::size_t> first;  // the first run of each name
  for (const Row& row : rows) {
    const ComparedRun& other = runs[row.runs.front()];
    if (other.settings.empty()) continue;
    const auto [known, is_new] = first.emplace(without_seed(other), row.runs.front());
    if (is_new) continue;
    const ComparedRun& one = runs[known->second];
    std::vector<std::string> keys;
    for (const SettingRow& setting : differing_settings({one, other}))
      if (setting.key != "seed" && !contains(ignored, setting.key)) keys.push_back(setting.key);
    notes.push_back(concat(one.name, " and ", other.name, " are separate rows, because they differ in ", join_names(keys), "."));
  }
}

// ---- columns

/// Returns the rows that `evaluate` measured for at least one run. If there are none, returns those of evaluations during training.
std::vector<ScoreRow> final_rows(const std::vector<ComparedRun>& runs) {
  std::set<std::tuple<std::string, std::string, std::string>> evaluated;
  for (const ComparedRun& run : runs)
    for (const Score& score : run.scores)
      if (score.evaluated) evaluated.emplace(score.task, score.data, score.metric);
  std::vector<ScoreRow> rows = unjudged_rows(runs);
  if (!evaluated.empty())
    std::erase_if(rows, [&](const ScoreRow& row) { return !evaluated.contains({row.task, row.data, row.metric}); });
  return rows;
}

std::string key_of(const ScoreRow& row) {
  return concat(row.task, ".", row.metric);
}

/// Whether the metric is what papers print of its task.
bool is_usual(const std::string& metric) {
  return metric == "top1" || metric == "accuracy" || metric == "dataset_miou" || metric.ends_with("recall@1");
}

/// Returns the rows of the usual metrics, and of tasks without such a metric all whose larger or smaller values are better.
std::vector<const ScoreRow*> main_rows(const std::vector<ScoreRow>& rows) {
  std::set<std::pair<std::string, std::string>> usual;
  for (const ScoreRow& row : rows)
    if (is_usual(row.metric)) usual.emplace(row.task, row.data);
  std::vector<const ScoreRow*> out;
  for (const ScoreRow& row : rows) {
    const bool judged = row.meaning.better != MetricRule::Better::neither;
    if (usual.contains({row.task, row.data}) ? is_usual(row.metric) : judged) out.push_back(&row);
  }
  return out;
}

/// Finds the row that a user's column names.
const ScoreRow& find_row(const std::string& column, const std::vector<ScoreRow>& rows) {
  static const std::regex form("([^.\\[]+)(\\[(.*)\\])?\\.([^=\\]]+)");
  std::smatch parts;
  if (!std::regex_match(column, parts, form))
    user_error("--columns ", column, ": expected TASK.METRIC=Heading or TASK[part of the data's description].METRIC=Heading");
  std::vector<const ScoreRow*> found;
  std::vector<std::string> known, data;
  for (const ScoreRow& row : rows) {
    if (!contains(known, key_of(row))) known.push_back(key_of(row));
    if (row.task != parts[1].str() || row.metric != parts[4].str()) continue;
    data.push_back(concat("[", row.data, "]"));
    if (row.data.find(parts[3].str()) != std::string::npos) found.push_back(&row);
  }
  const std::string key = concat(parts[1].str(), ".", parts[4].str());
  if (data.empty()) user_error("--columns: no run has ", key, suggestion(key, known));
  if (found.empty()) user_error("--columns ", column, ": ", key, " was measured on other data: ", join_names(data));
  if (found.size() > 1)
    user_error("--columns ", column, ": ", key, " was measured on several data: say which, as ", parts[1].str(), "[TEXT].", parts[4].str(),
               " with a part of ", join_names(data));
  return *found.front();
}

Column make_column(const ScoreRow& row, const std::vector<ScoreRow>& rows, std::string heading) {
  const bool several = std::ranges::any_of(
      rows, [&](const ScoreRow& each) { return each.task == row.task && each.metric == row.metric && each.data != row.data; });
  return {row.task, row.data, row.metric, std::move(heading), concat(row.task, " ", row.metric, several ? concat(" (", row.data, ")") : ""),
          row.meaning};
}

// ---- cells

struct Values {
  std::vector<std::size_t> runs;
  std::vector<double> values;
};

/// Returns the finite values of a row's runs.
Values finite_values(const Row& row, const ScoreRow& scores) {
  Values out;
  for (const std::size_t run : row.runs) {
    if (!scores.values[run] || !std::isfinite(*scores.values[run])) continue;
    out.runs.push_back(run);
    out.values.push_back(*scores.values[run]);
  }
  return out;
}

Cell make_cell(const Row& row, const ScoreRow& scores) {
  const Values found = finite_values(row, scores);
  Cell cell;
  cell.runs = found.runs.size();
  if (cell.runs == 0) return cell;
  cell.mean = mean_of(found.values);
  cell.interval = cell.runs > 1 ? t_interval(found.values) : scores.intervals[found.runs.front()];
  return cell;
}

/// Returns the mean over runs of a metric's values in all resamples; nothing if a run has no outcomes.
std::optional<std::vector<double>> mean_resamples(const Values& found, const ScoreRow& scores, Resamples& resamples) {
  std::vector<double> mean;
  for (const std::size_t run : found.runs) {
    const std::vector<double>* values = resamples.of(scores.outcomes[run], scores.metric);
    if (values == nullptr) return std::nullopt;
    mean.resize(values->size());
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += (*values)[i] / static_cast<double>(found.runs.size());
  }
  return mean;
}

std::optional<bool> differs_over_samples(const Values& found, const Values& base, const ScoreRow& scores, Resamples& resamples) {
  const auto same = [&](std::size_t run) { return same_samples(scores, run, base.runs.front()); };
  if (!std::ranges::all_of(found.runs, same) || !std::ranges::all_of(base.runs, same)) return std::nullopt;
  const auto one = mean_resamples(found, scores, resamples), other = mean_resamples(base, scores, resamples);
  if (!one || !other) return std::nullopt;
  const auto interval = difference_interval(*one, *other);
  return interval ? std::optional(excludes_zero(*interval)) : std::nullopt;
}

std::optional<bool> differs_over_seeds(const Values& found, const Values& base, const std::vector<ComparedRun>& runs) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < found.runs.size(); ++i) {
    const std::string* seed = runs[found.runs[i]].setting("seed");
    for (std::size_t j = 0; j < base.runs.size(); ++j) {
      const std::string* other = runs[base.runs[j]].setting("seed");
      if (seed != nullptr && other != nullptr && *seed == *other) differences.push_back(found.values[i] - base.values[j]);
    }
  }
  const auto interval = t_interval(differences);
  return interval ? std::optional(excludes_zero(*interval)) : std::nullopt;
}

double scale(const Column& column) {
  return column.meaning.percent ? 100 : 1;
}

std::string number_text(const Column& column, double value) {
  return fixed(scale(column) * value, column.decimals);
}

/// Chooses as many digits for a column that is not in percent as a percentage from 10 to 99 has.
void choose_decimals(std::size_t place, int digits, PaperTable& table) {
  Column& column = table.columns[place];
  column.decimals = digits;
  if (column.meaning.percent) return;
  double largest = 0;
  for (const Row& row : table.rows)
    if (row.cells[place].runs > 0) largest = std::max(largest, std::abs(row.cells[place].mean));
  if (largest > 0) column.decimals = std::clamp(digits + 1 - static_cast<int>(std::floor(std::log10(largest))), 0, 9);
}

/// Marks the best means of a column. Means that read the same as the best are best, too.
void mark_best_means(std::size_t place, PaperTable& table) {
  const Column& column = table.columns[place];
  if (column.meaning.better == MetricRule::Better::neither) return;
  const bool higher = column.meaning.better == MetricRule::Better::higher;
  std::optional<double> best;
  std::set<std::string> texts;
  for (const Row& row : table.rows) {
    const Cell& cell = row.cells[place];
    if (cell.runs == 0) continue;
    texts.insert(number_text(column, cell.mean));
    if (!best || (higher ? cell.mean > *best : cell.mean < *best)) best = cell.mean;
  }
  if (texts.size() < 2) return;
  for (Row& row : table.rows)
    row.cells[place].best = row.cells[place].runs > 0 && number_text(column, row.cells[place].mean) == number_text(column, *best);
}

/// Compares all rows with the baseline.
void compare_rows(std::size_t baseline, std::size_t place, const ScoreRow& scores, const std::vector<ComparedRun>& runs,
                  Resamples& resamples, PaperTable& table) {
  const Values base = finite_values(table.rows[baseline], scores);
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    const Values found = finite_values(table.rows[r], scores);
    if (r == baseline || found.runs.empty() || base.runs.empty()) continue;
    Cell& cell = table.rows[r].cells[place];
    cell.differs_over_samples = differs_over_samples(found, base, scores, resamples);
    cell.differs_over_seeds = differs_over_seeds(found, base, runs);
  }
}

std::size_t baseline_of(const std::string& name, const std::vector<Row>& rows) {
  std::vector<std::string> names;
  for (const Row& row : rows) names.push_back(row.name);
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) user_error("--baseline ", name, ": there is no such row; the rows are ", join_names(names));
  return static_cast<std::size_t>(found - names.begin());
}

// ---- notes

std::string heading_of(const Column& column) {
  return column.heading.empty() ? column.default_heading : column.heading;
}

template <class Condition>
bool any_cell(const PaperTable& table, Condition condition) {
  return std::ranges::any_of(table.rows, [&](const Row& row) { return std::ranges::any_of(row.cells, condition); });
}

void note_on_numbers(PaperTable& table) {
  std::vector<std::string>& notes = table.notes;
  const auto is_share = [](const Column& column) { return column.meaning.percent; };
  if (std::ranges::any_of(table.columns, is_share)) notes.push_back("Shares are in percent.");
  if (any_cell(table, [](const Cell& cell) { return cell.runs > 1; }))
    notes.push_back("± is half of the 95 % t-interval of a mean over seeds.");
  if (any_cell(table, [](const Cell& cell) { return cell.runs == 1 && cell.interval; }))
    notes.push_back("Brackets hold the 95 % bootstrap interval over the test samples of a single run; it says nothing about other seeds.");
  if (any_cell(table, [](const Cell& cell) { return cell.best; })) notes.push_back("Bold: the best mean of a column.");
  if (table.baseline.empty()) return;
  const std::string differs = concat(": differs from ", table.baseline);
  if (any_cell(table, [](const Cell& cell) { return cell.differs_over_samples.has_value(); }))
    notes.push_back(concat(kSamplesMark, differs, " on these test samples (paired bootstrap over the samples, 95 %)."));
  if (any_cell(table, [](const Cell& cell) { return cell.differs_over_seeds.has_value(); }))
    notes.push_back(concat(kSeedsMark, differs, " over seeds (paired t-test over the seeds of both, 5 %)."));
}

void note_on_seeds(PaperTable& table) {
  std::vector<std::string> lines;
  std::set<std::vector<std::string>> kinds;
  std::set<std::size_t> counts;
  for (const Row& row : table.rows) {
    counts.insert(row.runs.size());
    kinds.insert(row.seeds);
    lines.push_back(concat(row.name, " has ", row.runs.size(), row.runs.size() == 1 ? " run" : " runs",
                           row.seeds.empty() ? "" : concat(row.seeds.size() == 1 ? " (seed " : " (seeds ", join_names(row.seeds), ")")));
  }
  if (kinds.size() > 1 || counts.size() > 1) table.notes.push_back(concat("The rows have different seeds: ", join_names(lines), "."));
}

/// Sentences about columns; columns of the same sentence share it.
class ColumnNotes {
 public:
  void add(const std::string& sentence, const std::string& heading) {
    const auto known = std::ranges::find(notes_, sentence, &Note::first);
    if (known == notes_.end()) notes_.push_back({sentence, {heading}});
    else known->second.push_back(heading);
  }

  void move_to(PaperTable& table) const {
    for (const auto& [sentence, headings] : notes_) {
      const bool all = headings.size() > 2 && headings.size() == table.columns.size();
      table.notes.push_back(concat(all ? "All columns" : join_names(headings), sentence));
    }
  }

 private:
  using Note = std::pair<std::string, std::vector<std::string>>;
  std::vector<Note> notes_;
};

void note_on_gaps(const std::vector<ComparedRun>& runs, const std::vector<const ScoreRow*>& scores, PaperTable& table) {
  ColumnNotes notes;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    std::vector<std::string> absent, no_samples, no_seeds;
    for (const Row& row : table.rows) {
      const Cell& cell = row.cells[c];
      for (const std::size_t run : row.runs) {
        const auto& value = scores[c]->values[run];
        if (cell.runs > 0 && (!value || !std::isfinite(*value))) absent.push_back(runs[run].name);
      }
      if (cell.runs == 0) absent.push_back(row.name);
      if (table.baseline.empty() || row.name == table.baseline || cell.runs == 0) continue;
      if (!cell.differs_over_samples) no_samples.push_back(row.name);
      if (!cell.differs_over_seeds) no_seeds.push_back(row.name);
    }
    const std::string heading = heading_of(table.columns[c]);
    if (!absent.empty()) notes.add(concat(": missing for ", join_names(absent), "."), heading);
    if (!no_samples.empty())
      notes.add(concat(": ", kSamplesMark, " could not be tested for ", join_names(no_samples),
                       ", because samples.json is missing or lacks it, or the samples differ."), heading);
    if (!no_seeds.empty())
      notes.add(concat(": ", kSeedsMark, " could not be tested for ", join_names(no_seeds),
                       ", because fewer than two seeds have a value there and in ", table.baseline, "."), heading);
  }
  notes.move_to(table);
}

// ---- text

std::string marks_of(const Cell& cell, const char* samples, const char* seeds) {
  return concat(cell.differs_over_samples.value_or(false) ? samples : "", cell.differs_over_seeds.value_or(false) ? seeds : "");
}

/// Returns " ± 1.2" or " [52.1, 56.5]", in which `plus_minus` stands for the sign.
std::string interval_text(const Column& column, const Cell& cell, const char* plus_minus) {
  if (!cell.interval) return "";
  if (cell.runs > 1) return concat(plus_minus, number_text(column, (cell.interval->high - cell.interval->low) / 2));
  return concat("[", number_text(column, cell.interval->low), ", ", number_text(column, cell.interval->high), "]");
}

std::string runs_text(const Row& row, const Cell& cell) {
  return cell.runs < row.runs.size() ? concat(" (", cell.runs, " of ", row.runs.size(), " runs)") : "";
}

std::string markdown_cell(const Column& column, const Row& row, const Cell& cell) {
  if (cell.runs == 0) return "-";
  const std::string number = number_text(column, cell.mean), interval = interval_text(column, cell, "± "),
                    marks = marks_of(cell, kSamplesMark, kSeedsMark);
  return concat(cell.best ? "**" + number + "**" : number, interval.empty() ? "" : " " + interval, marks.empty() ? "" : " " + marks,
                runs_text(row, cell));
}

std::string latex_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') out += "\\textbackslash{}";
    else if (c == '~') out += "\\textasciitilde{}";
    else if (c == '^') out += "\\textasciicircum{}";
    else if (std::string_view("&%$#_{}").find(c) != std::string_view::npos) out += concat("\\", c);
    else out += c;
  }
  return out;
}

std::string latex_cell(const Column& column, const Row& row, const Cell& cell) {
  if (cell.runs == 0) return "--";
  const std::string number = number_text(column, cell.mean), interval = interval_text(column, cell, "$\\pm$"),
                    marks = marks_of(cell, "\\dagger", "\\ddagger");
  return concat(cell.best ? "\\textbf{" + number + "}" : number, marks.empty() ? "" : "$^{" + marks + "}$",
                interval.empty() ? "" : " {\\scriptsize " + interval + "}", runs_text(row, cell));
}

std::string csv_text(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return "\"" + std::regex_replace(text, std::regex("\""), "\"\"") + "\"";
}

std::string lines_of(const std::vector<std::string>& cells, const char* separator, const char* end) {
  std::string out;
  for (std::size_t i = 0; i < cells.size(); ++i) out += (i > 0 ? separator : "") + cells[i];
  return out + end;
}

/// Returns `down` if smaller values of the column are better.
std::string arrow(const Column& column, const char* down) {
  return column.meaning.better == MetricRule::Better::lower ? down : "";
}

}  // namespace

std::optional<Interval> t_interval(const std::vector<double>& values) {
  if (values.size() < 2) return std::nullopt;
  const double mean = mean_of(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  const auto count = static_cast<double>(values.size());
  const double half = t_quantile(values.size() - 1) * std::sqrt(squares / (count - 1) / count);
  return Interval{mean - half, mean + half};
}

PaperTable paper_table(const std::vector<ComparedRun>& runs, const PaperSettings& settings) {
  PaperTable table;
  table.rows = group_runs(runs, settings.ignored);
  table.baseline = settings.baseline;
  const std::vector<ScoreRow> rows = final_rows(runs);
  std::vector<const ScoreRow*> scores;
  for (const std::string& text : settings.columns) {
    const std::size_t end = text.find('=');
    scores.push_back(&find_row(text.substr(0, end), rows));
    table.columns.push_back(make_column(*scores.back(), rows, end == std::string::npos ? "" : text.substr(end + 1)));
  }
  if (settings.columns.empty()) {
    scores = main_rows(rows);
    for (const ScoreRow* row : scores) table.columns.push_back(make_column(*row, rows, ""));
  }
  if (scores.empty()) user_error(runs.front().folder, ": the runs have no evaluations: run evaluate first");
  const std::size_t baseline = table.baseline.empty() ? table.rows.size() : baseline_of(table.baseline, table.rows);

  Resamples resamples;
  std::vector<ScoreRow> shown;
  for (std::size_t c = 0; c < scores.size(); ++c) {
    for (Row& row : table.rows) row.cells.push_back(make_cell(row, *scores[c]));
    choose_decimals(c, settings.digits, table);
    if (!steps_differ(*scores[c])) mark_best_means(c, table);
    if (baseline < table.rows.size()) compare_rows(baseline, c, *scores[c], runs, resamples, table);
    shown.push_back(*scores[c]);
  }
  note_on_numbers(table);
  note_on_seeds(table);
  note_on_splits(table.rows, runs, settings.ignored, table.notes);
  note_on_gaps(runs, scores, table);
  if (const std::string steps = note_on_steps(shown); !steps.empty()) table.notes.push_back(steps);
  return table;
}

std::string paper_markdown(const PaperTable& table) {
  std::vector<std::string> header = {"", "runs"};
  for (const Column& column : table.columns) header.push_back(heading_of(column) + arrow(column, " ↓"));
  std::vector<std::vector<std::string>> lines;
  for (const Row& row : table.rows) {
    lines.push_back({row.name, concat(row.runs.size())});
    for (std::size_t c = 0; c < row.cells.size(); ++c) lines.back().push_back(markdown_cell(table.columns[c], row, row.cells[c]));
  }
  std::string text = markdown_table(header, lines);
  for (const std::string& note : table.notes) text += "\n" + note + "\n";
  return text;
}

std::string paper_latex(const PaperTable& table) {
  std::string text;
  for (const std::string& note : table.notes) text += "% " + note + "\n";
  text += "\\begin{tabular}{lr" + std::string(table.columns.size(), 'c') + "}\n\\toprule\n";
  std::vector<std::string> header = {"", "runs"};
  for (const Column& column : table.columns)
    header.push_back((column.heading.empty() ? latex_text(column.default_heading) : column.heading) + arrow(column, " $\\downarrow$"));
  text += lines_of(header, " & ", " \\\\\n\\midrule\n");
  for (const Row& row : table.rows) {
    std::vector<std::string> cells = {latex_text(row.name), concat(row.runs.size())};
    for (std::size_t c = 0; c < row.cells.size(); ++c) cells.push_back(latex_cell(table.columns[c], row, row.cells[c]));
    text += lines_of(cells, " & ", " \\\\\n");
  }
  return text + "\\bottomrule\n\\end{tabular}\n";
}

std::string paper_csv(const PaperTable& table) {
  std::vector<std::string> header = {"row", "runs"};
  for (const Column& column : table.columns) {
    const std::string heading = heading_of(column);
    for (const char* part : {"", " low", " high", " runs"}) header.push_back(csv_text(heading + part));
    if (!table.baseline.empty())
      for (const char* part : {" differs over samples", " differs over seeds"}) header.push_back(csv_text(heading + part));
  }
  std::string text = lines_of(header, ",", "\n");
  for (const Row& row : table.rows) {
    std::vector<std::string> cells = {csv_text(row.name), concat(row.runs.size())};
    for (std::size_t c = 0; c < row.cells.size(); ++c) {
      const Cell& cell = row.cells[c];
      const auto exact = [&](double value) { return nlohmann::json(scale(table.columns[c]) * value).dump(); };
      const auto answer = [](const std::optional<bool>& differs) -> std::string { return !differs ? "" : *differs ? "yes" : "no"; };
      cells.push_back(cell.runs > 0 ? exact(cell.mean) : "");
      cells.push_back(cell.interval ? exact(cell.interval->low) : "");
      cells.push_back(cell.interval ? exact(cell.interval->high) : "");
      cells.push_back(concat(cell.runs));
      if (table.baseline.empty()) continue;
      cells.push_back(answer(cell.differs_over_samples));
      cells.push_back(answer(cell.differs_over_seeds));
    }
    text += lines_of(cells, ",", "\n");
  }
  return text;
}

}  // namespace tessera::report
