#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <tessera/data/sample.h>

namespace tessera {

/// How many images a task shows in the report.
inline constexpr std::int64_t kExamplePictures = 12;

/// Chooses the samples of a pass that the report shows: at most `wanted`, evenly spread. If one is skipped, the next takes its
/// place.
class ExampleChooser {
 public:
  ExampleChooser(std::int64_t total, std::int64_t wanted = kExamplePictures) : total_(total), wanted_(wanted) {}
  /// Returns whether the sample is chosen. Call it once per sample, with rising index.
  bool choose(std::int64_t index) {
    if (chosen_ == wanted_ || index < chosen_ * total_ / wanted_) return false;
    ++chosen_;
    return true;
  }

 private:
  std::int64_t total_, wanted_;
  std::int64_t chosen_ = 0;
};

/// Converts uint8 [3, H, W] to an Image.
Image to_image(const at::Tensor& pixels);

}  // namespace tessera
