#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "src/evaluation/tasks/examples.h"
#include "src/evaluation/tasks/pass.h"
#include <tessera/evaluation/metrics/segmentation.h>
#include <tessera/report/task_result.h>

namespace tessera {

/// The mask value of pixels of unknown class.
inline constexpr std::int64_t kIgnoredClass = 255;

/// The classes of a source's masks.
struct MaskClasses {
  std::shared_ptr<const Source> source;
  std::vector<std::string> names;  // by mask value
  std::string setting;             // the setting that lists them, for messages ("segmentation.classes")
  std::vector<std::string> ignored{};  // those of `names` whose pixels get kIgnoredClass

  std::int64_t count() const { return std::ssize(names); }
  /// The index of the background class, if it exists and is not ignored.
  std::optional<std::int64_t> background() const;
  bool is_ignored(std::int64_t value) const;
};

/// Requires a mask.
Required masked();

/// Checks a few masks of the source, like check_samples(). Throws TaskMisfit for a class without a name.
void check_masks(const MaskClasses& classes, const std::string& setting, std::int64_t max_samples);

/// Returns the mask as [H, W] int64. Throws TaskMisfit for a class without a name.
at::Tensor mask_of(const std::vector<std::uint8_t>& mask, config::Size size, const std::string& key,
                   const MaskClasses& classes);

/// Returns the mask of each prepared sample in the same way.
std::vector<at::Tensor> masks_of(const std::vector<EvaluationSample>& samples, const MaskClasses& classes);

/// Scores images one by one and keeps some for the report.
class SegmentationRecord {
 public:
  /// For a pass over `total` samples; with `pictures`, the report shows some of them.
  SegmentationRecord(MaskClasses classes, std::int64_t total, bool pictures);

  /// target and found [H, W] int64; image() returns the image of the sample at `index`.
  void add(std::int64_t index, const at::Tensor& target, const at::Tensor& found, const std::function<Image()>& image);
  /// Adds image_miou, dataset_miou, pixel_accuracy and, with a background class, dataset_miou_with_background to the result, with
  /// their outcomes and the images kept.
  void write(TaskResult& result);

 private:
  MaskClasses classes_;
  metrics::SegmentationMeter meter_;
  ExampleChooser examples_;
  bool pictures_;
  std::vector<SegmentationExample> shown_;
};

}  // namespace tessera
