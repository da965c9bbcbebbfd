#include <algorithm>
#include <cmath>
#include <map>

#include <nlohmann/json.hpp>

#include <tessera/base/error.h>
#include <tessera/report/comparison.h>
#include <tessera/report/markdown_table.h>
#include <tessera/report/task_result.h>

namespace tessera::report {
namespace {

using OrderedJson = nlohmann::ordered_json;

void mark_best(ScoreRow& row) {
  row.best.assign(row.values.size(), false);
  if (row.better == Better::neither) return;
  std::vector<double> finite;
  for (const auto& value : row.values)
    if (value && std::isfinite(*value)) finite.push_back(*value);
  if (finite.empty()) return;
  const auto [least, greatest] = std::minmax_element(finite.begin(), finite.end());
  if (*least == *greatest) return;
  const double best = row.better == Better::higher ? *greatest : *least;
  for (std::size_t i = 0; i < row.values.size(); ++i) row.best[i] = row.values[i] == best;
}

std::vector<std::string> header_of(const std::vector<ComparedRun>& runs, const std::string& first) {
  std::vector<std::string> header = {first};
  for (const ComparedRun& run : runs) header.push_back(run.name);
  return header;
}

const char* name_of_better(Better better) {
  return better == Better::higher ? "higher" : better == Better::lower ? "lower" : "neither";
}

template <class Value>
OrderedJson values_of(const std::vector<std::optional<Value>>& values) {
  auto out = OrderedJson::array();
  for (const auto& value : values) out.push_back(value ? OrderedJson(*value) : OrderedJson(nullptr));
  return out;
}

/// Values of resamples, of each task once.
class Resamples {
 public:
  /// Null: the task has no outcomes of the metric.
  const std::vector<double>* of(const std::shared_ptr<const TaskOutcomes>& outcomes, const std::string& metric) {
    if (outcomes == nullptr || outcomes->samples < 2) return nullptr;
    const auto place = std::find_if(outcomes->metrics.begin(), outcomes->metrics.end(),
                                    [&](const Outcomes& each) { return each.metric == metric; });
    if (place == outcomes->metrics.end()) return nullptr;
    auto known = values_.find(outcomes.get());
    if (known == values_.end())
      known = values_.emplace(outcomes.get(), bootstrap_values(outcomes->metrics, outcomes->samples)).first;
    return &known->second[static_cast<std::size_t>(place - outcomes->metrics.begin())];
  }

 private:
  std::map<const TaskOutcomes*, std::vector<std::vector<double>>> values_;
};

bool same_samples(const ScoreRow& row, std::size_t first, std::size_t second) {
  const auto& one = row.outcomes[first];
  const auto& other = row.outcomes[second];
  return one && other && one->samples == other->samples && one->mark == other->mark;
}

void add_differences(ScoreRow& row, Resamples& resamples) {
  for (std::size_t first = 0; first < row.values.size(); ++first) {
    for (std::size_t second = first + 1; second < row.values.size(); ++second) {
      if (!row.values[first] || !row.values[second] || !same_samples(row, first, second)) continue;
      const auto* one = resamples.of(row.outcomes[first], row.metric);
      const auto* other = resamples.of(row.outcomes[second], row.metric);
      if (one == nullptr || other == nullptr) continue;
      if (const auto interval = difference_interval(*one, *other))
        row.differences.push_back({first, second, *row.values[first] - *row.values[second], *interval});
    }
  }
}

OrderedJson intervals_json(const ScoreRow& row) {
  auto out = OrderedJson::array();
  for (const auto& interval : row.intervals)
    out.push_back(interval ? OrderedJson({interval->low, interval->high}) : OrderedJson(nullptr));
  return out;
}

OrderedJson differences_json(const ScoreRow& row, const std::vector<ComparedRun>& runs) {
  auto out = OrderedJson::array();
  for (const Difference& each : row.differences)
    out.push_back({{"first", runs[each.first].name},
                   {"second", runs[each.second].name},
                   {"value", each.value},
                   {"interval", {each.interval.low, each.interval.high}},
                   {"beyond_chance", each.beyond_chance()}});
  return out;
}

/// "**54.31%** [52.1, 56.5]", "53.90% [51.7, 56.1] =".
std::string markdown_score(const ScoreRow& row, std::size_t run) {
  std::string text = score_text(row, run);
  if (row.best[run]) text = "**" + text + "**";
  if (const std::string interval = interval_text(row, run); !interval.empty()) text += " " + interval;
  return is_like_best(row, run) ? text + " =" : text;
}

}  // namespace

bool is_like_best(const ScoreRow& row, std::size_t run) {
  if (row.best[run]) return false;
  return std::any_of(row.differences.begin(), row.differences.end(), [&](const Difference& each) {
    const bool with_best = (each.first == run && row.best[each.second]) || (each.second == run && row.best[each.first]);
    return with_best && !each.beyond_chance();
  });
}

std::vector<ScoreRow> score_rows(const std::vector<ComparedRun>& runs) {
  std::vector<ScoreRow> rows;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (const Score& score : runs[i].scores) {
      auto row = std::find_if(rows.begin(), rows.end(), [&](const ScoreRow& each) {
        return each.task == score.task && each.data == score.data && each.metric == score.metric;
      });
      if (row == rows.end()) {
        rows.push_back({score.task, score.data, score.metric, better_value(score.metric), {}, {}});
        row = std::prev(rows.end());
        row->values.resize(runs.size());
        row->intervals.resize(runs.size());
        row->outcomes.resize(runs.size());
      }
      row->values[i] = score.value;
      row->intervals[i] = score.interval;
      row->outcomes[i] = score.outcomes;
    }
  }
  // Rows of a task stay together, in the order in which the tasks come first.
  std::vector<ScoreRow> sorted;
  for (const ScoreRow& row : rows) {
    const auto after = std::find_if(sorted.rbegin(), sorted.rend(), [&](const ScoreRow& each) {
                         return each.task == row.task && each.data == row.data;
                       }).base();
    sorted.insert(after == sorted.begin() ? sorted.end() : after, row);
  }
  Resamples resamples;
  for (ScoreRow& row : sorted) {
    mark_best(row);
    add_differences(row, resamples);
  }
  return sorted;
}

std::vector<SettingRow> differing_settings(const std::vector<ComparedRun>& runs) {
  std::vector<SettingRow> rows;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    auto place = rows.begin();  // behind the run's setting before: keys of one module stay together
    for (const auto& [key, value] : runs[i].settings) {
      auto row = std::find_if(rows.begin(), rows.end(), [&key = key](const auto& each) { return each.key == key; });
      if (row == rows.end()) {
        row = rows.insert(place, {key, {}});
        row->values.resize(runs.size());
      }
      row->values[i] = value;
      place = std::next(row);
    }
  }
  std::erase_if(rows, [&](const SettingRow& row) {
    std::vector<std::optional<std::string>> known;
    for (std::size_t i = 0; i < runs.size(); ++i)
      if (!runs[i].settings.empty()) known.push_back(row.values[i]);
    return std::adjacent_find(known.begin(), known.end(), std::not_equal_to<>()) == known.end();
  });
  return rows;
}

std::string score_text(const ScoreRow& row, std::size_t run) {
  const std::optional<double>& value = row.values[run];
  if (!value) return "-";
  return std::isfinite(*value) ? format_metric(row.metric, *value) : "NaN";
}

std::string interval_text(const ScoreRow& row, std::size_t run) {
  const bool known = run < row.intervals.size() && row.intervals[run];
  return known ? format_interval(row.metric, *row.intervals[run]) : "";
}

std::string comparison_markdown(const std::vector<ComparedRun>& runs) {
  std::vector<std::vector<std::string>> scores, settings;
  bool judged = false;
  for (const ScoreRow& row : score_rows(runs)) {
    std::vector<std::string> cells = {concat(row.task, " ", row.metric, " (", row.data, ")")};
    for (std::size_t i = 0; i < runs.size(); ++i) cells.push_back(markdown_score(row, i));
    judged = judged || !row.differences.empty();
    scores.push_back(std::move(cells));
  }
  for (const SettingRow& row : differing_settings(runs)) {
    std::vector<std::string> cells = {row.key};
    for (const auto& value : row.values) cells.push_back(value.value_or("-"));
    settings.push_back(std::move(cells));
  }
  std::string text = scores.empty() ? "No evaluations.\n" : markdown_table(header_of(runs, "metric"), scores);
  if (judged) text += "\n[95 % interval]; =: on these samples no different from the best beyond chance\n";
  if (!settings.empty()) text += "\n" + markdown_table(header_of(runs, "setting"), settings);
  return text;
}

nlohmann::json comparison_json(const std::vector<ComparedRun>& runs) {
  nlohmann::json out = {
      {"runs", nlohmann::json::array()}, {"scores", nlohmann::json::array()}, {"settings", nlohmann::json::array()}};
  for (const ComparedRun& run : runs)
    out["runs"].push_back({{"name", run.name},
                           {"folder", run.folder},
                           {"version", run.version},
                           {"step", run.step ? nlohmann::json(*run.step) : nlohmann::json(nullptr)}});
  for (const ScoreRow& row : score_rows(runs))
    out["scores"].push_back({{"task", row.task},
                             {"data", row.data},
                             {"metric", row.metric},
                             {"better", name_of_better(row.better)},
                             {"values", values_of(row.values)},
                             {"best", row.best},
                             {"intervals", intervals_json(row)},
                             {"differences", differences_json(row, runs)}});
  for (const SettingRow& row : differing_settings(runs))
    out["settings"].push_back({{"key", row.key}, {"values", values_of(row.values)}});
  return out;
}

}  // namespace tessera::report
