#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "src/report/comparison.h"
#include "src/report/markdown_table.h"
#include "src/report/page.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/report/task_result.h>

namespace tessera::report {
namespace {

using OrderedJson = nlohmann::ordered_json;

void mark_best(ScoreRow& row) {
  row.best.assign(row.values.size(), false);
  if (row.meaning.better == MetricRule::Better::neither || steps_differ(row)) return;
  std::vector<double> finite;
  for (const auto& value : row.values)
    if (value && std::isfinite(*value)) finite.push_back(*value);
  if (finite.empty()) return;
  const auto [least, greatest] = std::minmax_element(finite.begin(), finite.end());
  if (*least == *greatest) return;
  const double best = row.meaning.better == MetricRule::Better::higher ? *greatest : *least;
  for (std::size_t i = 0; i < row.values.size(); ++i) row.best[i] = row.values[i] == best;
}

std::vector<std::string> header_of(const std::vector<ComparedRun>& runs, const std::string& first) {
  std::vector<std::string> header = {first};
  for (const ComparedRun& run : runs) header.push_back(run.name);
  return header;
}

template <class Value>
OrderedJson values_of(const std::vector<std::optional<Value>>& values) {
  auto out = OrderedJson::array();
  for (const auto& value : values) out.push_back(value ? OrderedJson(*value) : OrderedJson(nullptr));
  return out;
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

/// Returns the number of steps of a whole run, or nullopt if it is unknown.
std::optional<std::int64_t> whole_steps(const ComparedRun& run) {
  const std::string* text = run.setting("training.steps");
  if (text == nullptr) return std::nullopt;
  std::int64_t value = 0;
  const auto [end, problem] = std::from_chars(text->data(), text->data() + text->size(), value);
  return problem == std::errc() && end == text->data() + text->size() ? std::optional(value) : std::nullopt;
}

/// Returns "evaluation.tasks.knn" for "evaluation.tasks.knn.k", and an empty text for any other setting.
std::string task_of_setting(const std::string& key) {
  constexpr std::string_view tasks = "evaluation.tasks.";
  if (!key.starts_with(tasks)) return "";
  return key.substr(0, key.find('.', tasks.size()));
}

/// If some run does not have a task, replaces all settings of this task by one row.
std::vector<SettingRow> with_missing_tasks_in_one_row(std::vector<SettingRow> rows, const std::vector<ComparedRun>& runs) {
  std::map<std::string, std::set<std::size_t>> having;
  std::size_t configured = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    configured += runs[i].settings.empty() ? 0 : 1;
    for (const auto& [key, value] : runs[i].settings)
      if (const std::string task = task_of_setting(key); !task.empty()) having[task].insert(i);
  }
  std::vector<SettingRow> out;
  for (SettingRow& row : rows) {
    const std::string task = task_of_setting(row.key);
    if (task.empty() || having[task].size() == configured) {
      out.push_back(std::move(row));
    } else if (std::none_of(out.begin(), out.end(), [&](const auto& each) { return each.key == task; })) {
      out.push_back({task, std::vector<std::optional<std::string>>(runs.size())});
      for (const std::size_t run : having[task]) out.back().values[run] = "yes";
    }
  }
  return out;
}

/// Returns the training steps at which a run's values were measured. There are several steps if some tasks were measured again later.
std::set<std::int64_t> steps_measured(const std::vector<ScoreRow>& rows, std::size_t run) {
  std::set<std::int64_t> steps;
  for (const ScoreRow& row : rows)
    if (row.steps[run]) steps.insert(*row.steps[run]);
  return steps;
}

/// If there are several runs, removes the rows of tasks that only one run has. Returns one line for each run that has such a task, for
/// example "only a: retrieval (d)" if only the run `a` has the task `retrieval` on the data `d`.
std::vector<std::string> take_lone_tasks(const std::vector<ComparedRun>& runs, std::vector<ScoreRow>& rows) {
  if (runs.size() < 2) return {};
  using Task = std::pair<std::string, std::string>;
  std::map<Task, std::set<std::size_t>> measured;
  for (const ScoreRow& row : rows)
    for (std::size_t i = 0; i < row.values.size(); ++i)
      if (row.values[i]) measured[{row.task, row.data}].insert(i);
  std::map<std::size_t, std::vector<std::string>> lone;
  std::set<Task> named;
  for (const ScoreRow& row : rows) {
    const Task task(row.task, row.data);
    if (measured[task].size() == 1 && named.insert(task).second)
      lone[*measured[task].begin()].push_back(concat(row.task, " (", row.data, ")"));
  }
  std::erase_if(rows, [&](const ScoreRow& row) { return named.contains({row.task, row.data}); });
  std::vector<std::string> lines;
  for (const auto& [run, tasks] : lone) lines.push_back(concat("only ", runs[run].name, ": ", join_names(tasks)));
  return lines;
}

/// Returns the table's first row, which shows at which step each run was measured. Returns nothing if no evaluation reports its step.
std::optional<std::vector<std::string>> row_of_steps(const std::vector<ScoreRow>& rows, std::size_t runs) {
  std::vector<std::string> cells = {"step measured"};
  for (std::size_t i = 0; i < runs; ++i) {
    std::vector<std::string> steps;
    for (const std::int64_t step : steps_measured(rows, i)) steps.push_back(with_thousands(step));
    cells.push_back(steps.empty() ? "-" : join_names(steps));
  }
  const bool known = std::any_of(std::next(cells.begin()), cells.end(), [](const auto& cell) { return cell != "-"; });
  return known ? std::optional(cells) : std::nullopt;
}

/// Returns the interval of a run's score, such as "[52.1, 56.5]", or an empty text if it has none.
std::string interval_text(const ScoreRow& row, std::size_t run) {
  const bool known = run < row.intervals.size() && row.intervals[run];
  return known ? format_interval(row.meaning, *row.intervals[run]) : "";
}

/// Returns a cell such as "**54.31%** [52.1, 56.5]" or "53.90% [51.7, 56.1] =".
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

bool steps_differ(const ScoreRow& row) {
  std::set<std::int64_t> steps;
  for (const auto& step : row.steps)
    if (step) steps.insert(*step);
  return steps.size() > 1;
}

std::string note_on_steps(const std::vector<ScoreRow>& rows) {
  if (std::none_of(rows.begin(), rows.end(), steps_differ)) return "";
  return "Measured after different numbers of steps, so none is marked as the best: longer training by itself makes a difference.";
}

std::string step_text(const ComparedRun& run) {
  if (!run.step) return "-";
  const std::optional<std::int64_t> steps = whole_steps(run);
  return concat(with_thousands(*run.step), steps && *steps >= *run.step ? " of " + with_thousands(*steps) : "", " steps");
}

std::string state_text(const ComparedRun& run) {
  const std::optional<std::int64_t> steps = whole_steps(run);
  if (!run.step || !steps) return "-";
  return *run.step >= *steps ? "finished" : "not finished";
}

const std::vector<double>* Resamples::of(const std::shared_ptr<const TaskOutcomes>& outcomes, const std::string& metric) {
  if (outcomes == nullptr || outcomes->samples < 2) return nullptr;
  const auto place = std::find_if(outcomes->metrics.begin(), outcomes->metrics.end(),
                                  [&](const Outcomes& each) { return each.metric == metric; });
  if (place == outcomes->metrics.end()) return nullptr;
  auto known = values_.find(outcomes.get());
  if (known == values_.end())
    known = values_.emplace(outcomes.get(), bootstrap_values(outcomes->metrics, outcomes->samples)).first;
  return &known->second[static_cast<std::size_t>(place - outcomes->metrics.begin())];
}

bool same_samples(const ScoreRow& row, std::size_t first, std::size_t second) {
  const auto& one = row.outcomes[first];
  const auto& other = row.outcomes[second];
  return one && other && one->samples == other->samples && one->mark == other->mark;
}

std::vector<ScoreRow> unjudged_rows(const std::vector<ComparedRun>& runs) {
  std::vector<ScoreRow> rows;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (const Score& score : runs[i].scores) {
      auto row = std::find_if(rows.begin(), rows.end(), [&](const ScoreRow& each) {
        return each.task == score.task && each.data == score.data && each.metric == score.metric;
      });
      if (row == rows.end()) {
        rows.push_back({score.task, score.data, score.metric, score.meaning, {}, {}});
        row = std::prev(rows.end());
        row->values.resize(runs.size());
        row->intervals.resize(runs.size());
        row->outcomes.resize(runs.size());
        row->steps.resize(runs.size());
        row->rule = score.rule;
      }
      if (row->rule != score.rule) row->rule.clear();
      row->values[i] = score.value;
      row->intervals[i] = score.interval;
      row->outcomes[i] = score.outcomes;
      row->steps[i] = score.step;
    }
  }
  // The rows of a task stay together; tasks are in the order of their first rows.
  std::vector<ScoreRow> sorted;
  for (const ScoreRow& row : rows) {
    const auto after = std::find_if(sorted.rbegin(), sorted.rend(), [&](const ScoreRow& each) {
                         return each.task == row.task && each.data == row.data;
                       }).base();
    sorted.insert(after == sorted.begin() ? sorted.end() : after, row);
  }
  return sorted;
}

std::vector<ScoreRow> score_rows(const std::vector<ComparedRun>& runs) {
  std::vector<ScoreRow> rows = unjudged_rows(runs);
  Resamples resamples;
  for (ScoreRow& row : rows) {
    mark_best(row);
    add_differences(row, resamples);
  }
  return rows;
}

std::vector<SettingRow> differing_settings(const std::vector<ComparedRun>& runs) {
  std::vector<SettingRow> rows;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    // Inserts a new setting's row after the row of the preceding setting in the run's configuration, so that a module's settings stay
    // together.
    auto place = rows.begin();
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
  return with_missing_tasks_in_one_row(std::move(rows), runs);
}

std::string score_text(const ScoreRow& row, std::size_t run) {
  const std::optional<double>& value = row.values[run];
  if (!value) return "-";
  return std::isfinite(*value) ? format_metric(row.meaning, *value) : "NaN";
}

std::string comparison_markdown(const std::vector<ComparedRun>& runs) {
  std::vector<std::vector<std::string>> scores, settings;
  bool judged = false;
  std::vector<ScoreRow> rows = score_rows(runs);
  const std::vector<std::string> lone = take_lone_tasks(runs, rows);
  const std::string apart = note_on_steps(rows);
  if (auto steps = row_of_steps(rows, runs.size())) scores.push_back(std::move(*steps));
  for (const ScoreRow& row : rows) {
    std::vector<std::string> cells = {concat(row.task, " ", row.metric, " (", row.data, ")")};
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const bool mixed = row.steps[i] && steps_measured(rows, i).size() > 1;
      cells.push_back(markdown_score(row, i) + (mixed ? concat(" (step ", with_thousands(*row.steps[i]), ")") : ""));
    }
    judged = judged || !row.differences.empty();
    scores.push_back(std::move(cells));
  }
  for (const SettingRow& row : differing_settings(runs)) {
    std::vector<std::string> cells = {row.key};
    for (const auto& value : row.values) cells.push_back(value.value_or("-"));
    settings.push_back(std::move(cells));
  }
  std::string text = scores.empty() ? "No evaluations.\n" : markdown_table(header_of(runs, "metric"), scores);
  if (judged) text += "\n[95 % interval]; =: not significantly different from the best on these samples\n";
  if (!apart.empty()) text += "\n" + apart + "\n";
  for (const std::string& line : lone) text += "\n" + line + "\n";
  if (!settings.empty()) text += "\n" + markdown_table(header_of(runs, "setting"), settings);
  return text;
}

namespace {

/// Returns comparison_json() of runs whose score_rows() are known.
nlohmann::json make_json(const std::vector<ComparedRun>& runs, const std::vector<ScoreRow>& rows) {
  nlohmann::json out = {
      {"runs", nlohmann::json::array()}, {"scores", nlohmann::json::array()}, {"settings", nlohmann::json::array()}};
  for (const ComparedRun& run : runs)
    out["runs"].push_back({{"name", run.name},
                           {"folder", run.folder},
                           {"version", run.version},
                           {"step", run.step ? nlohmann::json(*run.step) : nlohmann::json(nullptr)},
                           {"state", state_text(run)},
                           {"device", run.device},
                           {"date", run.date},
                           {"parameters", run.parameters}});
  for (const ScoreRow& row : rows) {
    out["scores"].push_back(to_json(row.meaning));
    out["scores"].back().update({{"task", row.task},
                                 {"data", row.data},
                                 {"metric", row.metric},
                                 {"rule", row.rule},
                                 {"values", values_of(row.values)},
                                 {"steps", values_of(row.steps)},
                                 {"best", row.best},
                                 {"intervals", intervals_json(row)},
                                 {"differences", differences_json(row, runs)}});
  }
  for (const SettingRow& row : differing_settings(runs))
    out["settings"].push_back({{"key", row.key}, {"values", values_of(row.values)}});
  return out;
}

}  // namespace

nlohmann::json comparison_json(const std::vector<ComparedRun>& runs) {
  return make_json(runs, score_rows(runs));
}

std::string comparison_page(const std::vector<ComparedRun>& runs) {
  const std::vector<ScoreRow> rows = score_rows(runs);
  std::vector<ScoreRow> shared = rows;
  nlohmann::json data = make_json(runs, rows);
  data["kind"] = "comparison";
  data["percent"] = nlohmann::json::array();
  data["title"] = runs.size() == 1 ? runs.front().name : concat("Comparison of ", runs.size(), " runs");
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::string* objective = runs[i].setting("objective.name");
    data["runs"][i].update({{"trained_for", step_text(runs[i])},
                            {"objective", objective == nullptr ? "" : *objective},
                            {"has_settings", !runs[i].settings.empty()},
                            {"curves", runs[i].curves.to_json()}});
    for (const std::string& name : runs[i].percent) data["percent"].push_back(name);
  }
  data["lone"] = take_lone_tasks(runs, shared);
  data["note_on_steps"] = note_on_steps(rows);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    nlohmann::json& score = data["scores"][r];
    score["lone"] = std::ranges::none_of(shared, [&](const ScoreRow& each) { return each.task == rows[r].task && each.data == rows[r].data; });
    score["steps_differ"] = steps_differ(rows[r]);
    for (std::size_t i = 0; i < runs.size(); ++i) {
      score["measured"].push_back(rows[r].values[i].has_value());
      score["like_best"].push_back(is_like_best(rows[r], i));
    }
  }
  return page(data);
}

}  // namespace tessera::report
