#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <tessera/data/sample.h>

namespace tessera {

/// Pictures that a task shows in the report.
inline constexpr std::int64_t kExamplePictures = 12;

/// Chooses the samples of a pass that the report shows: at most `wanted`, evenly spread. In place of one that is skipped
/// comes the next.
class ExampleChooser {
 public:
  ExampleChooser(std::int64_t total, std::int64_t wanted = kExamplePictures) : total_(total), wanted_(wanted) {}
  /// Whether the sample is one of them. Each is asked about once, with rising index.
  bool choose(std::int64_t index) {
    if (chosen_ == wanted_ || index < chosen_ * total_ / wanted_) return false;
    ++chosen_;
    return true;
  }

 private:
  std::int64_t total_, wanted_;
  std::int64_t chosen_ = 0;
};

/// uint8 [3, H, W] to a picture.
Image to_image(const at::Tensor& pixels);

}  // namespace tessera
