#include <filesystem>
#include <map>
#include <sstream>

#include <nlohmann/json.hpp>

#include "src/evaluation/report/chart.h"
#include "src/evaluation/report/html.h"
#include "src/evaluation/report/sections.h"
#include <tessera/base/text.h>
#include <tessera/evaluation/report.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

using report::escape;

std::string facts(const ReportHead& head) {
  if (head.facts.empty()) return "";
  std::string html = "<div class=\"card\"><dl class=\"facts\">";
  for (const auto& [name, value] : head.facts) {
    html += concat("<div", value.size() > 40 ? " class=\"wide\"" : "", "><dt>", escape(name), "</dt><dd>", escape(value),
                   "</dd></div>");
  }
  return html + "</dl></div>";
}

std::string summary(const std::vector<TaskResult>& results) {
  std::string html =
      "<h2 id=\"results\">Results</h2><div class=\"card scroll\"><table><tr><th>Task</th><th>Data</th><th "
      "class=\"n\">Images</th>"
      "<th>Metric</th><th class=\"n\">Value</th></tr>";
  for (const TaskResult& result : results) {
    for (std::size_t i = 0; i < result.metrics.size(); ++i) {
      const auto& [name, value] = result.metrics[i];
      const bool first = i == 0;
      html += concat("<tr><td>", first ? escape(result.task) : "", "</td><td>", first ? escape(result.data) : "",
                     "</td><td class=\"n\">", first ? with_thousands(result.samples) : "", "</td><td>", escape(name),
                     "</td><td class=\"n\">", escape(format_metric(name, value)), "</td></tr>");
    }
  }
  return html + "</table></div>";
}

std::string section(const TaskResult& result, std::size_t index) {
  std::string html =
      concat("<h2 id=\"task", index, "\">", escape(result.task), "</h2><p class=\"soft\">", escape(result.data), ", ",
             with_thousands(result.samples), " images, ", format_duration(result.seconds));
  for (const auto& [reason, count] : result.skipped)
    html += concat("; skipped ", with_thousands(count), " (", escape(reason), ")");
  html += "</p><div class=\"numbers\">";
  for (const auto& [name, value] : result.metrics) {
    html += concat("<div class=\"number\"><b>", escape(format_metric(name, value)), "</b><span>", escape(name),
                   "</span></div>");
  }
  html += "</div>";
  return html + report::classification_examples(result.pictures) + report::retrieval_sheets(result.pictures) +
         report::segmentation_overlays(result.pictures) + report::class_values(result) +
         report::confusion_table(result.pictures);
}

std::string charts(const std::vector<CurveChart>& all) {
  std::string html;
  for (const CurveChart& chart : all) {
    const std::string svg = report::svg_chart(chart);
    if (!svg.empty())
      html += concat("<div class=\"card\"><h3 style=\"margin:0 0 8px\">", escape(chart.title), "</h3>", svg, "</div>");
  }
  if (html.empty()) return "";
  return "<h2 id=\"training\">Training</h2><div class=\"grid charts\">" + html + "</div>";
}

}  // namespace

std::string html_report(const ReportHead& head, const std::vector<TaskResult>& results) {
  const std::string training = charts(head.charts);
  std::string navigation = "<nav><a href=\"#results\">results</a>";
  std::string sections;
  for (std::size_t i = 0; i < results.size(); ++i) {
    navigation += concat("<a href=\"#task", i, "\">", escape(results[i].task), "</a>");
    sections += section(results[i], i);
  }
  if (!training.empty()) navigation += "<a href=\"#training\">training</a>";
  navigation += "</nav>";
  return concat(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"><title>",
      escape(head.title), " &middot; evaluation</title><style>", report::style(), "</style></head><body><main><h1>",
      escape(head.title), "</h1>", "<p class=\"soft\">Evaluation by Tessera</p>", navigation, facts(head),
      summary(results), sections, training,
      "<footer>Everything on this page is inline; it can be mailed or archived as one "
      "file.</footer></main></body></html>\n");
}

std::vector<CurveChart> read_run_curves(const std::string& run_folder) {
  const std::string path = run_folder + "/metrics.jsonl";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return {};
  std::map<std::string, Curve> curves;
  const auto add = [&](const std::string& name, double step, const nlohmann::json& value) {
    if (!value.is_number()) return;
    Curve& curve = curves[name];
    curve.name = name;
    curve.points.emplace_back(step, value.get<double>());
  };
  for (const std::string& line : split(io::read_file(path), '\n')) {
    const auto row = nlohmann::json::parse(line, nullptr, false);
    if (!row.is_object() || !row.contains("step") || !row["step"].is_number()) continue;
    const double step = row["step"].get<double>();
    for (const char* key : {"loss", "lr", "grad_norm"}) {
      if (row.contains(key)) add(key, step, row[key]);
    }
    if (!row.contains("terms") || !row["terms"].is_object()) continue;
    for (const auto& [name, value] : row["terms"].items()) add("terms." + name, step, value);
  }
  const auto take = [&](const std::string& title, const std::vector<std::string>& names) {
    CurveChart chart{title, {}};
    for (const std::string& name : names) {
      const auto found = curves.find(name);
      if (found != curves.end()) chart.curves.push_back(found->second);
    }
    return chart;
  };
  std::vector<CurveChart> charts = {take("Loss", {"loss"})};
  CurveChart terms{"Loss terms", {}};
  for (const auto& [name, curve] : curves) {
    if (name.starts_with("terms.")) terms.curves.push_back({name.substr(6), curve.points});
  }
  if (terms.curves.size() > 1) charts.push_back(std::move(terms));
  charts.push_back(take("Learning rate", {"lr"}));
  charts.push_back(take("Gradient norm", {"grad_norm"}));
  std::erase_if(charts, [](const CurveChart& chart) { return chart.curves.empty(); });
  return charts;
}

}  // namespace tessera
