#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <iomanip>
#include <numeric>
#include <sstream>
#include <string_view>

#include <nlohmann/json.hpp>

#include "src/base/digest.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/report/task_result.h>

namespace tessera {
namespace {

std::string pad(const std::string& text, std::size_t width, bool right) {
  const std::string space(width > text.size() ? width - text.size() : 0, ' ');
  return right ? space + text : text + space;
}

std::string count_of(std::int64_t count, const char* what) {
  return concat(with_thousands(count), " ", what, count == 1 ? "" : "s");
}

}  // namespace

std::string Reading::line() const {
  std::string out = text;
  for (const auto& [name, score] : items) out += concat(out.empty() ? "" : ", ", name, " ", fixed(score, 3));
  return out;
}

std::int64_t TaskResult::skipped_total() const {
  return std::accumulate(skipped.begin(), skipped.end(), std::int64_t{0},
                         [](std::int64_t sum, const auto& entry) { return sum + entry.second; });
}

void TaskResult::add_share(const std::string& name, double value, MetricRule::Better better) {
  metrics.emplace_back(name, value);
  rules[name] = {.percent = true, .better = better};
}

void TaskResult::add_number(const std::string& name, double value, MetricRule::Better better) {
  metrics.emplace_back(name, value);
  rules[name] = {.percent = false, .better = better};
}

void TaskResult::add_card(const nlohmann::json& card) {
  cards.push_back(std::make_shared<const nlohmann::json>(card));
}

MetricRule TaskResult::rule_of(const std::string& metric) const {
  const auto found = rules.find(metric);
  return found == rules.end() ? usual_rule(metric) : found->second;
}

MetricRule usual_rule(const std::string& metric) {
  const auto holds_any = [&](std::initializer_list<std::string_view> parts) {
    return std::ranges::any_of(parts, [&](std::string_view part) { return metric.find(part) != std::string::npos; });
  };
  MetricRule rule{.percent = holds_any({"top", "recall", "accuracy", "iou", "mean_per_class", "precision", "f1", "_score"})};
  const bool baseline = metric.starts_with("chunks_") || metric.starts_with("random_") || metric.ends_with("_before");
  if (baseline || metric.starts_with("train_")) return rule;
  if (rule.percent || metric == "cider_d")
    rule.better = MetricRule::Better::higher;
  else if (holds_any({"loss", "rank", "perplexity", "error"}))
    rule.better = MetricRule::Better::lower;
  return rule;
}

nlohmann::json to_json(const MetricRule& rule) {
  using Better = MetricRule::Better;
  return {{"better", rule.better == Better::higher ? "higher" : rule.better == Better::lower ? "lower" : "neither"}, {"percent", rule.percent}};
}

MetricRule rule_in(const nlohmann::json& result, const std::string& metric) {
  const auto rules = result.find("rules");
  if (rules == result.end() || !rules->is_object() || !rules->contains(metric) || !rules->at(metric).is_object()) return usual_rule(metric);
  const nlohmann::json& rule = rules->at(metric);
  const std::string better = rule.value("better", "neither");
  return {.percent = rule.value("percent", false),
          .better = better == "higher"  ? MetricRule::Better::higher
                    : better == "lower" ? MetricRule::Better::lower
                                        : MetricRule::Better::neither};
}

std::string format_metric(const MetricRule& rule, double value) {
  if (rule.percent) return fixed(100 * value, 2) + "%";
  std::ostringstream out;
  out << std::setprecision(4) << value;
  return out.str();
}

std::string format_interval(const MetricRule& rule, const report::Interval& interval) {
  std::ostringstream out;
  if (rule.percent) out << std::fixed << std::setprecision(1);
  if (!rule.percent) out << std::setprecision(3);
  const double factor = rule.percent ? 100 : 1;
  out << "[" << factor * interval.low << ", " << factor * interval.high << "]";
  return out.str();
}

nlohmann::json results_in(const nlohmann::json& file) {
  auto out = nlohmann::json::array();
  const auto list = file.contains("tasks") ? file.find("tasks") : file.find("results");
  if (list == file.end() || !list->is_array()) return out;
  for (const auto& result : *list)
    if (result.is_object()) out.push_back(result);
  return out;
}

std::string reading_line(const nlohmann::json& reading) {
  Reading out;
  if (reading.is_string()) out.text = reading.get<std::string>();
  if (reading.is_array())
    for (const auto& item : reading)
      if (item.is_object()) out.items.emplace_back(item.value("name", ""), item.value("score", 0.0));
  return out.line();
}

report::TaskOutcomes make_outcomes(const TaskResult& result) {
  return {result.task, result.data, hexadecimal(result.sample_mark), result.samples, result.outcomes};
}

nlohmann::json to_json(const TaskResult& result) {
  nlohmann::json metrics = nlohmann::json::object();
  for (const auto& [name, value] : result.metrics) metrics[name] = value;
  nlohmann::json out = {{"task", result.task},       {"data", result.data},
                        {"metrics", metrics},        {"samples", result.samples},
                        {"skipped", result.skipped}, {"seconds", std::round(result.seconds * 1000) / 1000}};
  for (const auto& [name, value] : result.metrics) out["rules"][name] = to_json(result.rule_of(name));
  if (!result.rule.empty() && !result.metrics.empty()) out["rule"] = result.rule;
  if (result.texts > 0) out["texts"] = result.texts;
  if (result.equal_images > 0) out["equal_images"] = result.equal_images;
  out["settings"] = config::to_json(result.settings);
  for (const auto& [name, interval] : result.intervals) out["intervals"][name] = {interval.low, interval.high};
  if (!result.classes.empty()) out["classes"] = result.classes;
  if (!result.prompts.empty()) out["prompts"] = result.prompts;
  if (!result.chance.empty()) out["chance"] = result.chance;
  if (!result.notes.empty()) out["notes"] = result.notes;
  for (const Reading& reading : result.readings) {
    nlohmann::json& place = out["readings"][reading.of];
    if (reading.items.empty()) place = reading.text;
    for (const auto& [name, score] : reading.items) place.push_back({{"name", name}, {"score", score}});
  }
  return out;
}

nlohmann::json to_json(const TaskFailure& failure) {
  return {{"task", failure.task},
          {"place", failure.place},
          {"reason", failure.reason},
          {"settings", config::to_json(failure.settings)}};
}

std::string data_and_counts(const std::string& data, std::int64_t images, std::int64_t texts) {
  if (data.empty()) return data;
  const auto says = [&](const char* what) {
    return data.find(concat(" ", with_thousands(images), what)) != std::string::npos;
  };
  const bool known = images == 0 || says(" samples") || says(" images");
  return concat(data, known ? "" : ", " + count_of(images, "image"), texts > 0 ? ", " + count_of(texts, "text") : "");
}

std::string summary_line(const TaskResult& result) {
  std::string line = result.task + ":";
  for (std::size_t i = 0; i < result.metrics.size(); ++i) {
    const auto& [name, value] = result.metrics[i];
    line += concat(i > 0 ? ", " : " ", name, " ", format_metric(result.rule_of(name), value));
  }
  line +=
      concat(" (", count_of(result.samples, "image"), result.texts > 0 ? ", " + count_of(result.texts, "text") : "");
  if (result.skipped_total() > 0) line += concat(", ", with_thousands(result.skipped_total()), " skipped");
  return line + ")";
}

std::string results_table(const std::vector<TaskResult>& results) {
  const bool intervals =
      std::any_of(results.begin(), results.end(), [](const auto& result) { return !result.intervals.empty(); });
  const bool texts = std::any_of(results.begin(), results.end(), [](const auto& result) { return result.texts > 0; });
  constexpr std::size_t kColumns = 7;
  std::vector<std::array<std::string, kColumns>> rows = {
      {"task", "data", "images", texts ? "texts" : "", "metric", "value", intervals ? "95% interval" : ""}};
  for (const TaskResult& result : results) {
    if (result.metrics.empty())
      rows.push_back({result.task, result.data, with_thousands(result.samples), "", "none", "", ""});
    for (std::size_t i = 0; i < result.metrics.size(); ++i) {
      const auto& [name, value] = result.metrics[i];
      const auto interval = result.intervals.find(name);
      rows.push_back({i == 0 ? result.task : "", i == 0 ? result.data : "",
                      i == 0 ? with_thousands(result.samples) : "",
                      i == 0 && result.texts > 0 ? with_thousands(result.texts) : "", name, format_metric(result.rule_of(name), value),
                      interval == result.intervals.end() ? "" : format_interval(result.rule_of(name), interval->second)});
    }
  }
  std::array<std::size_t, kColumns> widths{};
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string table;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::string line;
    for (std::size_t c = 0; c < rows[r].size(); ++c) {
      if (widths[c] > 0) line += (c > 0 ? "  " : "") + pad(rows[r][c], widths[c], c == 2 || c == 3 || c >= 5);
    }
    table += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    if (r == 0) {
      const auto shown = std::ranges::count_if(widths, [](std::size_t width) { return width > 0; });
      table +=
          std::string(std::accumulate(widths.begin(), widths.end(), 2 * static_cast<std::size_t>(shown - 1)), '-') +
          "\n";
    }
  }
  return table;
}

}  // namespace tessera
