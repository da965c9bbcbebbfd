#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "src/base/dump_utf8.h"
#include "src/training/log/run_log.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>
#include <tessera/training/config/config.h>

namespace tessera {
namespace {

constexpr std::chrono::minutes kPageAge{1};

std::string bar(std::int64_t step, std::int64_t total) {
  constexpr std::int64_t width = 24;
  const std::int64_t filled = total > 0 ? width * step / total : 0;
  return "[" + std::string(static_cast<std::size_t>(filled), '#') +
         std::string(static_cast<std::size_t>(width - filled), '.') + "]";
}

// Deletes the evaluations of later steps. They would otherwise count as evaluations of the steps that are trained now.
void drop_evaluations(const std::string& folder, std::int64_t step) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const std::int64_t own = name.starts_with("step_") && name.ends_with(".json") ? std::atoll(name.c_str() + 5) : -1;
    if (own > step || (own == 0 && step == 0)) std::filesystem::remove(entry.path(), ignored);
  }
}

}  // namespace

RunLog::RunLog(const std::string& folder, std::int64_t total_steps, const LogSettings& settings, bool active)
    : folder_(folder),
      path_(folder + "/metrics.jsonl"),
      tensorboard_(settings.tensorboard),
      wants_page_(settings.page),
      table_(folder + "/metrics.csv"),
      command_line_(settings.command),
      total_steps_(total_steps),
      active_(active),
      terminal_(active && ::isatty(STDERR_FILENO) == 1) {
  if (!active_) return;
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor_ < 0) user_error(path_, ": cannot write: ", std::strerror(errno));
}

RunLog::~RunLog() {
  clear();
  if (command_)
    for (const std::string& line : command_->close()) warning(line);
  if (descriptor_ >= 0) ::close(descriptor_);
}

void RunLog::resume_at(std::int64_t step, const std::string& title,
                       const std::vector<std::pair<std::string, std::string>>& facts, const std::string& id) {
  if (!active_) return;
  title_ = title;
  id_ = id;
  begin_ = step;
  table_.resume_at(step);
  drop_evaluations(folder_ + "/evaluation", step);
  if (wants_page_) {
    page_.emplace(folder_, title, facts);
    page_->resume_at(step);
  }
  std::string kept;
  for (const std::string& line : split(io::read_file(path_), '\n')) {
    const auto row = nlohmann::json::parse(line, nullptr, false);
    if (!row.is_object() || row.value("step", step + 1) > step) continue;
    kept += line + "\n";
    if (page_) page_->add_row(row);
  }
  io::write_file(path_, kept);
  ::close(descriptor_);
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (descriptor_ < 0) user_error(path_, ": cannot write: ", std::strerror(errno));
  if (tensorboard_) events_.emplace(folder_ + "/tensorboard", step);
}

void RunLog::record(const MetricsRow& record) {
  if (!active_) return;
  const nlohmann::ordered_json row = to_json(record);
  // Each row is one write, so that a killed run never leaves half a line.
  if (!io::append(descriptor_, dump_utf8(row) + "\n")) report_failed_write(path_, std::strerror(errno));
  spread(row);
  if (page_) page_->add_row(row);
  last_ = record;
  if (!terminal_) log::info(status(record.step));
}

void RunLog::spread(const nlohmann::ordered_json& row) {
  if (events_ && !events_->scalars(row.at("step"), scalars_of(row))) report_failed_write(events_->path(), std::strerror(errno));
  try {
    table_.add(row);
  } catch (const UserError& error) {
    report_failed_write("", error.what());
  }
  hand_over(dump_utf8(row));
}

void RunLog::start_command() {
  const std::string folder = std::filesystem::absolute(folder_).lexically_normal().string();
  try {
    command_.emplace(*command_line_, RowCommand::Variables{{"TESSERA_RUN_FOLDER", folder},
                                                           {"TESSERA_RUN_NAME", title_},
                                                           {"TESSERA_RUN_ID", id_},
                                                           {"TESSERA_RUN_STEP", std::to_string(begin_)}});
  } catch (const UserError& error) {
    warning(concat(error.what(), "; training continues without it"));
    command_line_.reset();
    return;
  }
  const nlohmann::ordered_json start = {
      {"name", title_}, {"id", id_}, {"folder", folder}, {"step", begin_}, {"total_steps", total_steps_}};
  command_->send(dump_utf8(nlohmann::ordered_json{{"start", start}}));
}

void RunLog::hand_over(const std::string& row) {
  if (command_line_ && !command_) start_command();
  if (!command_) return;
  command_->send(row);
  if (const auto line = command_->news()) warning(*line);
}

void RunLog::evaluated(const RowPlace& place, const std::vector<std::pair<std::string, double>>& metrics, const nlohmann::json& result) {
  if (!active_) return;
  spread(to_json(place, metrics));
  if (page_) page_->add_result(place.step, result);
}

void RunLog::evaluation_failed(std::int64_t step, const std::string& task, const std::string& reason) {
  warning(concat("step ", step, ": ", task, " failed: ", reason, "; training continues"));
  if (page_) page_->add_evaluation_failure(step, task, reason);
}

bool RunLog::page_due() const {
  return page_ && std::chrono::steady_clock::now() - page_written_ >= kPageAge;
}

void RunLog::write_page(RunStatus status) {
  if (!page_) return;
  page_written_ = std::chrono::steady_clock::now();
  status.total_steps = total_steps_;
  status.seconds_left = seconds_left(status.step);
  try {
    page_->write(status);
  } catch (const UserError& error) {
    report_failed_write("", error.what());
  }
}

void RunLog::report_failed_write(const std::string& path, const std::string& reason) {
  if (write_failed_) return;
  write_failed_ = true;
  warning(concat(path, path.empty() ? "" : ": cannot write: ", reason, "; training continues without part of its log"));
}

double RunLog::seconds_left(std::int64_t step) const {
  if (!last_ || last_->step == 0) return 0;
  return last_->seconds / static_cast<double>(last_->step) * static_cast<double>(total_steps_ - step);
}

std::string RunLog::status(std::int64_t step) const {
  const std::string place = concat("step ", with_thousands(step), "/", with_thousands(total_steps_));
  return last_ ? concat(place, "  ", status_text(*last_), "  ETA ", format_duration(seconds_left(step))) : place;
}

void RunLog::tick(std::int64_t step) {
  if (!terminal_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_tick_ < std::chrono::milliseconds(100) && step < total_steps_) return;
  last_tick_ = now;
  std::fprintf(stderr, "\r%s %s\033[K", bar(step, total_steps_).c_str(), status(step).c_str());
  std::fflush(stderr);
  bar_shown_ = true;
}

void RunLog::say(log::Level level, const std::string& text) {
  if (!active_) return;
  clear();
  log::write(level, text);
}

void RunLog::clear() {
  if (!bar_shown_) return;
  std::fprintf(stderr, "\r\033[K");
  std::fflush(stderr);
  bar_shown_ = false;
}

}  // namespace tessera
