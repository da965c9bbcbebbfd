// The only file that includes spdlog, because spdlog's fmt and the one in LibTorch's headers do not compile together.
#include <tessera/base/log.h>

#include <cstdlib>
#include <memory>
#include <mutex>

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace tessera::log {
namespace {

spdlog::level::level_enum spdlog_level(Level level) {
  switch (level) {
    case Level::info: return spdlog::level::info;
    case Level::warning: return spdlog::level::warn;
    case Level::error: return spdlog::level::err;
  }
  return spdlog::level::info;
}

spdlog::level::level_enum level_from_environment() {
  const char* name = std::getenv("TESSERA_LOG");
  const std::string_view wanted = name == nullptr ? "" : name;
  return wanted == "warning" ? spdlog::level::warn : wanted == "error" ? spdlog::level::err : spdlog::level::info;
}

std::shared_ptr<spdlog::logger> make_logger(const std::string& file) {
  auto logger = std::make_shared<spdlog::logger>("tessera", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  if (!file.empty()) logger->sinks().push_back(std::make_shared<spdlog::sinks::basic_file_sink_mt>(file));
  logger->set_pattern("%H:%M:%S %^%l%$ %v");
  logger->flush_on(spdlog::level::info);
  return logger;
}

std::mutex mutex;

std::shared_ptr<spdlog::logger>& current() {
  static std::shared_ptr<spdlog::logger> logger = [] {
    auto made = make_logger("");
    made->set_level(level_from_environment());
    return made;
  }();
  return logger;
}

}  // namespace

void write(Level level, std::string_view text) {
  std::shared_ptr<spdlog::logger> logger;
  {
    std::lock_guard lock(mutex);
    logger = current();
  }
  logger->log(spdlog_level(level), spdlog::string_view_t(text.data(), text.size()));
}

void set_level(Level level) {
  std::lock_guard lock(mutex);
  current()->set_level(spdlog_level(level));
}

void set_file(const std::string& path) {
  std::lock_guard lock(mutex);
  auto made = make_logger(path);
  made->set_level(current()->level());
  current() = std::move(made);
}

}  // namespace tessera::log
