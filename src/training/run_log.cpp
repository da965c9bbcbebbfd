#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <iomanip>
#include <sstream>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>
#include <tessera/training/run_log.h>

namespace tessera {
namespace {

// JSON has no NaN: such a value is null in the file.
nlohmann::json number(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
}

std::string to_line(const StepRecord& r) {
  nlohmann::ordered_json row;
  row["step"] = r.step;
  row["lr"] = r.learning_rate;
  row["loss"] = number(r.loss);
  row["terms"] = nlohmann::ordered_json::object();
  for (const auto& [name, value] : r.terms) row["terms"][name] = number(value);
  row["grad_norm"] = number(r.grad_norm);
  row["samples_per_second"] = r.samples_per_second;
  row["seconds"] = r.seconds;
  row["logit_scale"] = r.logit_scale ? number(*r.logit_scale) : nlohmann::json(nullptr);
  row["wait_share"] = r.wait_share;
  return row.dump() + "\n";
}

std::vector<std::pair<std::string, double>> scalars_of(const StepRecord& r) {
  std::vector<std::pair<std::string, double>> out{{"loss/total", r.loss},
                                                  {"optimizer/learning_rate", r.learning_rate},
                                                  {"optimizer/grad_norm", r.grad_norm},
                                                  {"throughput/samples_per_second", r.samples_per_second},
                                                  {"throughput/wait_share", r.wait_share}};
  for (const auto& [name, value] : r.terms) out.emplace_back("loss/" + name, value);
  if (r.logit_scale) out.emplace_back("model/logit_scale", *r.logit_scale);
  return out;
}

std::string bar(std::int64_t step, std::int64_t total) {
  constexpr std::int64_t width = 24;
  const std::int64_t filled = total > 0 ? width * step / total : 0;
  return "[" + std::string(static_cast<std::size_t>(filled), '#') +
         std::string(static_cast<std::size_t>(width - filled), '.') + "]";
}

}  // namespace

RunLog::RunLog(const std::string& folder, std::int64_t total_steps, bool tensorboard, bool active)
    : path_(folder + "/metrics.jsonl"),
      event_folder_(tensorboard ? folder + "/tensorboard" : ""),
      total_steps_(total_steps),
      active_(active),
      terminal_(active && ::isatty(STDERR_FILENO) == 1) {
  if (!active_) return;
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor_ < 0) user_error(path_, ": cannot write: ", std::strerror(errno));
}

RunLog::~RunLog() {
  clear();
  if (descriptor_ >= 0) ::close(descriptor_);
}

void RunLog::resume_at(std::int64_t step) {
  if (!active_) return;
  std::string kept;
  for (const std::string& line : split(io::read_file(path_), '\n')) {
    const auto row = nlohmann::json::parse(line, nullptr, false);
    if (row.is_object() && row.value("step", step + 1) <= step) kept += line + "\n";
  }
  io::write_file(path_, kept);
  ::close(descriptor_);
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (descriptor_ < 0) user_error(path_, ": cannot write: ", std::strerror(errno));
  if (!event_folder_.empty()) events_.emplace(event_folder_, step);
}

void RunLog::record(const StepRecord& record) {
  if (!active_) return;
  const std::string row = to_line(record);
  // One write per row: the file never holds half a line of a run that is killed.
  if (::write(descriptor_, row.data(), row.size()) != static_cast<ssize_t>(row.size())) report_failed_write(path_);
  if (events_ && !events_->scalars(record.step, scalars_of(record))) report_failed_write(events_->path());
  last_ = record;
  if (!terminal_) log::info(status(record.step));
}

void RunLog::evaluation(std::int64_t step, const std::vector<std::pair<std::string, double>>& metrics) {
  if (!events_) return;
  std::vector<std::pair<std::string, double>> values;
  for (const auto& [name, value] : metrics) values.emplace_back("evaluation/" + name, value);
  if (!events_->scalars(step, values)) report_failed_write(events_->path());
}

void RunLog::report_failed_write(const std::string& path) {
  if (write_failed_) return;
  const std::string reason = std::strerror(errno);
  write_failed_ = true;
  line(concat(path, ": cannot write: ", reason, "; training goes on without some rows"));
}

std::string RunLog::status(std::int64_t step) const {
  std::ostringstream out;
  out << "step " << with_thousands(step) << "/" << with_thousands(total_steps_);
  if (!last_) return out.str();
  out << std::fixed << std::setprecision(4) << "  loss " << last_->loss;
  if (last_->terms.size() > 1)
    for (const auto& [name, value] : last_->terms) out << "  " << name << " " << value;
  out << std::setprecision(last_->samples_per_second < 100 ? 1 : 0) << "  " << last_->samples_per_second
      << " samples/s";
  const double per_step = last_->step > 0 ? last_->seconds / static_cast<double>(last_->step) : 0;
  out << "  ETA " << format_duration(per_step * static_cast<double>(total_steps_ - step));
  return out.str();
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

void RunLog::line(const std::string& text) {
  if (!active_) return;
  clear();
  log::info(text);
}

void RunLog::clear() {
  if (!bar_shown_) return;
  std::fprintf(stderr, "\r\033[K");
  std::fflush(stderr);
  bar_shown_ = false;
}

}  // namespace tessera
