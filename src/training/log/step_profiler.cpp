#include <filesystem>
#include <set>

#include <ATen/record_function.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/training/checkpoint/checkpoint.h>
#include <tessera/training/config/config.h>
#include <tessera/training/log/step_profiler.h>

namespace tessera {

namespace kineto = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

// The step itself, as a bar above its operators.
struct StepProfiler::Scope {
  explicit Scope(std::int64_t step) : record(at::RecordScope::USER_SCOPE) {
    if (record.isActive()) record.before(concat("step ", step));
  }
  at::RecordFunction record;
};

StepProfiler::StepProfiler(const LogSettings& settings, const std::string& folder, const ProcessGroup& group,
                           const at::Device& device)
    : steps_(settings.profile), device_(device) {
  if (!steps_) return;
  const std::string own = group.size() == 1 ? "" : concat("_rank", group.rank());
  path_ = folder + "/trace_" + step_folder_name((*steps_)[0]) + own + ".json";
}

StepProfiler::~StepProfiler() {
  if (!running_) return;
  try {
    save();
  } catch (const std::exception& error) {
    log::warning(error.what());
  }
}

void StepProfiler::before(std::int64_t step) {
  if (!steps_ || step < (*steps_)[0] || step > (*steps_)[1]) return;
  if (!running_) {
    std::set<ActivityType> activities{ActivityType::CPU};
    if (!device_.is_cpu()) activities.insert(ActivityType::CUDA);
    const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO,
                                                       /*report_input_shapes=*/true);
    kineto::prepareProfiler(config, activities);
    kineto::enableProfiler(config, activities);
    running_ = true;
  }
  scope_ = std::make_unique<Scope>(step);
}

std::optional<std::string> StepProfiler::after(std::int64_t step) {
  if (!running_) return std::nullopt;
  scope_.reset();
  if (step < (*steps_)[1]) return std::nullopt;
  save();
  return path_;
}

void StepProfiler::save() {
  scope_.reset();
  running_ = false;
  const auto result = kineto::disableProfiler();
  const std::string aside = path_ + ".tmp.json";
  result->save(aside);
  std::error_code error;
  std::filesystem::rename(aside, path_, error);
  if (error) user_error(path_, ": cannot write the profiler's trace: ", error.message());
}

}  // namespace tessera
