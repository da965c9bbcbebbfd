#include <algorithm>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "tests/reference/compare.h"

namespace tessera::probe {
namespace {

template <class... Args>
std::string format(const char* pattern, Args... args) {
  char text[256];
  std::snprintf(text, sizeof text, pattern, args...);
  return text;
}

// Returns the error as a percentage of the bound; "0%" if there is no error.
std::string share(const Row& row) {
  if (row.error == 0) return "0%";
  return row.bound == 0 ? "over" : format("%.2g%%", 100 * row.error / row.bound);
}

const char* verdict(const CaseReport& report) {
  if (!report.skipped.empty()) return "skipped";
  return report.agrees() ? "agrees " : "DIFFERS";
}

}  // namespace

std::string format_table(const CaseReport& report, bool brief) {
  std::string out = std::string(verdict(report)) + "  " + report.path + "  (" + report.module +
                    (report.note.empty() ? "" : ": " + report.note) + ")\n";
  if (!report.skipped.empty()) out += "  " + report.skipped + "\n";
  if (!report.failure.empty()) out += "  the module threw: " + report.failure + "\n";
  std::size_t width = 6;
  for (const Row& row : report.rows) width = std::max(width, row.tensor.size());
  bool titled = false;
  for (const Row& row : report.rows) {
    if (brief && row.agrees()) continue;
    if (!titled) out += "    tensor" + std::string(width - 6, ' ') + "  worst error       bound   of bound\n";
    titled = true;
    out += std::string(row.agrees() ? "    " : "  ! ") + row.tensor + std::string(width - row.tensor.size(), ' ');
    out += row.problem.empty() ? "  " + format("%11.3g %11.3g %10s", row.error, row.bound, share(row).c_str())
                               : "  " + row.problem;
    out += "\n";
  }
  return out;
}

nlohmann::json to_json(const CaseReport& report) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Row& row : report.rows) {
    nlohmann::json item = {
        {"tensor", row.tensor}, {"error", row.error}, {"bound", row.bound}, {"agrees", row.agrees()}};
    if (!row.problem.empty()) item["problem"] = row.problem;
    rows.push_back(item);
  }
  nlohmann::json out = {{"path", report.path},
                        {"module", report.module},
                        {"note", report.note},
                        {"agrees", report.agrees()},
                        {"rows", rows}};
  if (!report.failure.empty()) out["failure"] = report.failure;
  if (!report.skipped.empty()) out["skipped"] = report.skipped;
  return out;
}

}  // namespace tessera::probe
