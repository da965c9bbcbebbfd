#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/config/fields.h>

namespace tessera {

/// The maximum number of patches per image in one part of the run, for resize_mode naflex.
struct ResolutionStep {
  double until = 1;  // end of this part, as a fraction of the run
  std::int64_t max_patches = 256;
};

template <class Visitor>
void fields(Visitor& v, ResolutionStep& s) {
  v("until", s.until, "share of the run's steps at which this part ends", config::in_range(0, 1));
  v("max_patches", s.max_patches, "maximum number of patches per image", config::at_least(1));
}

/// Throws UserError naming `path` if the shares are not increasing.
void check_resolution(const std::vector<ResolutionStep>& steps, const std::string& path);

/// Returns the max_patches of the part that contains the point `share` of the run (0: start, 1: end); 0 if all parts end before it.
std::int64_t max_patches_at(const std::vector<ResolutionStep>& steps, double share);

}  // namespace tessera
