#include <filesystem>

#include <nlohmann/json.hpp>

#include "src/base/clock.h"
#include "src/base/dump_utf8.h"
#include "src/training/log/run_changes.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

std::string changes_file(const std::string& run) {
  return run + "/changes.jsonl";
}

// Returns the entries of the file. Skips lines that are not JSON objects.
std::vector<nlohmann::json> read_changes(const std::string& run) {
  std::vector<nlohmann::json> out;
  std::error_code ignored;
  if (!std::filesystem::exists(changes_file(run), ignored)) return out;
  for (const std::string& line : split(io::read_file(changes_file(run)), '\n'))
    if (auto json = nlohmann::json::parse(line, nullptr, false); json.is_object()) out.push_back(std::move(json));
  return out;
}

}  // namespace

void note_changes(const std::string& run, std::int64_t step, const std::vector<Change>& changes) {
  std::vector<nlohmann::json> all = read_changes(run);
  const auto gone = std::erase_if(all, [&](const nlohmann::json& each) { return each.value("step", step) >= step; });
  if (gone == 0 && step == 0) return;
  if (step > 0) all.push_back({{"step", step}, {"resumed", utc_now("%Y-%m-%dT%H:%M:%SZ")}});
  for (const Change& change : changes)
    all.push_back({{"step", step}, {"key", change.key}, {"before", change.before}, {"now", change.now}});
  std::string text;
  for (const nlohmann::json& each : all)
    text += dump_utf8(each) + "\n";
  io::write_file(changes_file(run), text);
}

std::vector<std::pair<std::string, std::string>> noted_changes(const std::string& run) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const nlohmann::json& each : read_changes(run))
    if (each.contains("key"))
      out.emplace_back(
          concat("From step ", with_thousands(each.value("step", std::int64_t{0}))),
          concat(each.value("key", ""), ": ", each.value("before", ""), " before, ", each.value("now", ""), " now"));
  return out;
}

std::map<double, std::string> marks_of_changes(const std::string& run) {
  std::map<double, std::string> marks;
  for (const nlohmann::json& each : read_changes(run)) {
    std::string& mark = marks[each.value("step", 0.0)];
    if (mark != "changed") mark = each.contains("key") ? "changed" : "resumed";
  }
  return marks;
}

}  // namespace tessera
