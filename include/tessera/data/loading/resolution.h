#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/config/fields.h>

namespace tessera {

/// The maximum number of patches per image in one part of the run, for images that keep their shapes (naflex).
struct ResolutionStep {
  double until = 1;  // share of the run at which this step ends
  std::int64_t max_patches = 256;
};

template <class Visitor>
void fields(Visitor& v, ResolutionStep& s) {
  v("until", s.until, "share of the run's steps at which this part ends", config::in_range(0, 1));
  v("max_patches", s.max_patches, "maximum number of patches per image", config::at_least(1));
}

/// Throws UserError naming `path` if the shares are not increasing.
void check_resolution(const std::vector<ResolutionStep>& steps, const std::string& path);

/// Returns the max_patches of the first step that ends after this share of the run; 0 if all steps have ended.
std::int64_t max_patches_at(const std::vector<ResolutionStep>& steps, double share);

}  // namespace tessera
