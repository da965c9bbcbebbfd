#include <algorithm>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "src/report/chart.h"
#include "src/report/html.h"
#include "src/report/report.h"
#include "src/report/run_curves.h"
#include "src/report/score_rule.h"
#include "src/report/sections.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

using report::escape;

/// Returns the interval of a metric, such as "[51.2, 57.9]", or an empty text if it has none.
std::string interval_text(const TaskResult& result, const std::string& metric) {
  const auto interval = result.intervals.find(metric);
  return interval == result.intervals.end() ? "" : format_interval(metric, interval->second);
}

std::string summary(const std::vector<TaskResult>& results, const std::vector<TaskFailure>& failures) {
  const bool intervals =
      std::any_of(results.begin(), results.end(), [](const auto& result) { return !result.intervals.empty(); });
  const char* const columns = intervals ? "3" : "2";
  std::string html = "<h2 id=\"results\">Results</h2><div class=\"card scroll fit\"><table>";
  for (const TaskResult& result : results) {
    html += concat("<tr class=\"part\"><th colspan=\"", columns, "\">", escape(result.task), " <span>",
                   escape(data_and_counts(result.data, result.samples, result.texts)), "</span></th></tr>");
    for (const auto& [name, value] : result.metrics)
      html += concat("<tr><td>", report::breakable(name), "</td><td class=\"n\">", escape(format_metric(name, value)), "</td>",
                     intervals ? concat("<td class=\"n soft\">", interval_text(result, name), "</td>") : "", "</tr>");
  }
  html += "</table></div>";
  if (intervals)
    html +=
        "<p class=\"soft\">In brackets: 95&nbsp;% intervals by a bootstrap over samples. They show how much a value depends on the choice "
        "of samples, but not how much it depends on the training seed.</p>";
  for (const TaskFailure& failure : failures)
    html += concat("<p><b>", escape(failure.place.empty() ? failure.task : failure.place), "</b> failed: ", escape(failure.reason), "</p>");
  return html;
}

std::string listed(const std::string& name, const std::vector<std::string>& items) {
  if (items.empty()) return "";
  std::string html = concat("<p><b>", name, "</b> (", items.size(), "): ");
  for (std::size_t i = 0; i < items.size(); ++i) html += (i > 0 ? ", " : "") + escape(items[i]);
  return html + "</p>";
}

/// Returns the settings of the task. If the task names no data, the data of the suite or the command line are filled in.
config::Node with_data(config::Node settings, const ReportHead& head) {
  for (const auto& [key, given] : head.data)
    if (const config::Node* own = settings.find(key); own != nullptr && own->is_null()) settings.set(key, given);
  return settings;
}

/// Returns the classes, prompts and settings of a task.
std::string question(const TaskResult& result, const ReportHead& head) {
  return concat("<details><summary class=\"soft\">Classes, prompts and settings</summary><div class=\"card scroll\">",
                listed("Classes", result.classes), listed("Prompts", result.prompts),
                "<pre style=\"white-space:pre-wrap;overflow-wrap:break-word;margin:0\">",
                escape(config::to_yaml(with_data(result.settings, head))), "</pre></div></details>");
}

/// Whether the task's bar chart already shows the metric: its bar "swap_obj", for example, shows "swap_obj_accuracy".
bool has_bar(const TaskPictures& pictures, const std::string& metric) {
  return pictures.class_values.size() > 1 &&
         std::any_of(pictures.class_values.begin(), pictures.class_values.end(),
                     [&](const auto& value) { return metric == value.first + "_accuracy"; });
}

std::string section(const TaskResult& result, std::size_t index, const ReportHead& head) {
  std::string html =
      concat("<h2 id=\"task", index, "\">", escape(result.task), "</h2><p class=\"soft\">",
             escape(data_and_counts(result.data, result.samples, result.texts)), ", ", format_duration(result.seconds));
  for (const auto& [reason, count] : result.skipped)
    html += concat("; skipped ", with_thousands(count), " (", escape(reason), ")");
  html += "</p>";
  const std::string rule = result.metrics.empty() ? "" : report::score_rule(result.task, result.settings);
  if (!rule.empty()) html += "<p>" + escape(rule) + "</p>";
  if (!result.notes.empty()) html += "<ul class=\"notes\">";
  for (const std::string& note : result.notes) html += "<li>" + escape(note) + "</li>";
  if (!result.notes.empty()) html += "</ul>";
  html += "<div class=\"numbers\">";
  for (const auto& [name, value] : result.metrics) {
    if (has_bar(result.pictures, name)) continue;
    const std::string interval = interval_text(result, name);
    const auto chance = result.chance.find(name);
    html += report::number_card(
        format_metric(name, value),
        concat(name, interval.empty() ? "" : " " + interval,
               chance == result.chance.end() ? "" : ", chance " + format_metric(name, chance->second)));
  }
  return html + "</div>" + report::classification_examples(result.pictures) +
         report::retrieval_sheets(result.pictures) + report::query_sheets(result.pictures) +
         report::caption_sheets(result.pictures) + report::map_sheets(result.pictures) +
         report::scatter_charts(result.pictures) + report::segmentation_overlays(result.pictures) +
         report::slot_sheets(result.pictures) + report::token_sheets(result.pictures) +
         report::group_sheets(result.pictures) + report::class_values(result.pictures) +
         report::confusion_table(result.pictures) + question(result, head);
}

}  // namespace

std::string html_report(const ReportHead& head, const std::vector<TaskResult>& results,
                        const std::vector<TaskFailure>& failures) {
  const std::string training = report::chart_cards(head.charts);
  std::string navigation = "<nav><a href=\"#results\">results</a>";
  std::string sections;
  for (std::size_t i = 0; i < results.size(); ++i) {
    navigation += concat("<a href=\"#task", i, "\">", escape(results[i].task), "</a>");
    sections += section(results[i], i, head);
  }
  if (!training.empty()) navigation += "<a href=\"#training\">training</a>";
  if (!head.facts.empty()) navigation += "<a href=\"#model\">model</a>";
  navigation += "</nav>";
  const std::string curves = training.empty() ? "" : "<h2 id=\"training\">Training</h2>" + training;
  return report::page(
      head.title + " \u00b7 evaluation", "",
      concat("<h1>", escape(head.title), "</h1>", "<p class=\"soft\">Evaluation by Tessera</p>", navigation,
             summary(results, failures), sections, curves,
             head.facts.empty() ? "" : "<h2 id=\"model\">Model and run</h2>", report::fact_card(head.facts),
             "<footer>Everything on this page is inline; it can be mailed or archived as one "
             "file.</footer>"));
}

std::vector<CurveChart> read_run_curves(const std::string& run_folder) {
  const std::string path = run_folder + "/metrics.jsonl";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return {};
  report::RunCurves curves;
  for (const std::string& line : split(io::read_file(path), '\n'))
    curves.add(nlohmann::json::parse(line, nullptr, false));
  return curves.training();
}

}  // namespace tessera
