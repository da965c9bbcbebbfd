#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <tessera/sample.h>

namespace tessera {

/// Number of images that a task shows in the report.
inline constexpr std::int64_t kExampleImages = 12;

/// Chooses which samples of a pass the report shows: at most `wanted` samples, evenly spread. If a sample is skipped, the next sample
/// takes its place.
class ExampleChooser {
 public:
  ExampleChooser(std::int64_t total, std::int64_t wanted = kExampleImages) : total_(total), wanted_(wanted) {}
  /// Returns true if the sample is chosen. Must be called once per sample, in ascending order of `index`.
  bool choose(std::int64_t index) {
    if (chosen_ == wanted_ || index < chosen_ * total_ / wanted_) return false;
    ++chosen_;
    return true;
  }

 private:
  std::int64_t total_, wanted_;
  std::int64_t chosen_ = 0;
};

/// Converts pixels, uint8 [3, H, W], to an Image.
Image to_image(const at::Tensor& pixels);

}  // namespace tessera
