#include "src/training/checkpoint/checkpoint.h"
#include "src/training/log/step_profiler.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/training/config/config.h>

namespace tessera {

StepProfiler::StepProfiler(const LogSettings& settings, const std::string& folder, const ProcessGroup& group,
                           const at::Device& device)
    : steps_(settings.profile), device_(device) {
  if (!steps_) return;
  const std::string own = group.size() == 1 ? "" : concat("_rank", group.rank());
  path_ = folder + "/trace_" + step_folder_name((*steps_)[0]) + own + ".json";
}

StepProfiler::~StepProfiler() {
  if (!profiler_) return;
  try {
    save();
  } catch (const std::exception& error) {
    log::warning(error.what());
  }
}

void StepProfiler::before(std::int64_t step) {
  if (!steps_ || step < (*steps_)[0] || step > (*steps_)[1]) return;
  if (!profiler_) profiler_ = std::make_unique<Profiler>(device_);
  profiler_->mark(concat("step ", step));
}

std::optional<std::string> StepProfiler::after(std::int64_t step) {
  if (!profiler_) return std::nullopt;
  profiler_->end_mark();
  if (step < (*steps_)[1]) return std::nullopt;
  save();
  return path_;
}

void StepProfiler::save() {
  const std::unique_ptr<Profiler> profiler = std::move(profiler_);
  profiler->stop();
  profiler->save(path_);
}

}  // namespace tessera
