#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/config/fields.h>

namespace tessera {

/// Of images that keep their shapes (naflex): how many patches they have at most in a part of the run.
struct ResolutionStep {
  double until = 1;  // share of the run
  std::int64_t max_patches = 256;
};

template <class Visitor>
void fields(Visitor& v, ResolutionStep& s) {
  v("until", s.until, "share of the run's steps that it ends at", config::in_range(0, 1));
  v("max_patches", s.max_patches, "patches that an image has at most", config::at_least(1));
}

/// Throws UserError naming `path` where the shares do not rise.
void check_resolution(const std::vector<ResolutionStep>& steps, const std::string& path);

/// The first step's that ends behind this share of the run; 0: all have ended.
std::int64_t max_patches_at(const std::vector<ResolutionStep>& steps, double share);

}  // namespace tessera
