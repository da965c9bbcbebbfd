#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iomanip>
#include <numeric>
#include <sstream>

#include <nlohmann/json.hpp>

#include "src/base/digest.h"
#include "src/report/metric.h"
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

std::string format_metric(const std::string& name, double value) {
  if (report::is_share(name)) return fixed(100 * value, 2) + "%";
  std::ostringstream out;
  out << std::setprecision(4) << value;
  return out.str();
}

std::string format_interval(const std::string& name, const report::Interval& interval) {
  std::ostringstream out;
  const bool share = report::is_share(name);
  if (share) out << std::fixed << std::setprecision(1);
  if (!share) out << std::setprecision(3);
  const double factor = share ? 100 : 1;
  out << "[" << factor * interval.low << ", " << factor * interval.high << "]";
  return out.str();
}

report::TaskOutcomes outcomes_of(const TaskResult& result) {
  return {result.task, result.data, hexadecimal(result.sample_mark), result.samples, result.outcomes};
}

nlohmann::json to_json(const TaskResult& result) {
  nlohmann::json metrics = nlohmann::json::object();
  for (const auto& [name, value] : result.metrics) metrics[name] = value;
  nlohmann::json out = {{"task", result.task},       {"data", result.data},
                        {"metrics", metrics},        {"samples", result.samples},
                        {"skipped", result.skipped}, {"seconds", std::round(result.seconds * 1000) / 1000}};
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
    line += concat(i > 0 ? ", " : " ", name, " ", format_metric(name, value));
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
                      i == 0 && result.texts > 0 ? with_thousands(result.texts) : "", name, format_metric(name, value),
                      interval == result.intervals.end() ? "" : format_interval(name, interval->second)});
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
