#include <algorithm>

#include <tessera/base/error.h>
#include <tessera/data/loading/loader_settings.h>

namespace tessera {

void check_resolution(const std::vector<ResolutionStep>& steps, const std::string& path) {
  for (std::size_t i = 1; i < steps.size(); ++i)
    if (steps[i].until <= steps[i - 1].until)
      user_error(path, "[", i, "].until is ", steps[i].until, ", not above ", steps[i - 1].until,
                 " of the step before it: the shares must increase");
}

std::int64_t max_patches_at(const std::vector<ResolutionStep>& steps, double share) {
  const auto found = std::ranges::find_if(steps, [&](const ResolutionStep& step) { return share < step.until; });
  return found == steps.end() ? 0 : found->max_patches;
}

}  // namespace tessera
