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

/// What a mask has where nobody knows the class.
inline constexpr std::int64_t kIgnoredClass = 255;

/// The classes that the masks of a source hold.
struct MaskClasses {
  std::shared_ptr<const Source> source;
  std::vector<std::string> names;  // by mask value
  std::string setting;             // that lists them, for messages ("segmentation.classes")
  std::vector<std::string> ignored{};  // of the names: their pixels get kIgnoredClass

  std::int64_t count() const { return std::ssize(names); }
  /// Of the classes that count.
  std::optional<std::int64_t> background() const;
  bool is_ignored(std::int64_t value) const;
};

/// A mask.
Required masked();

/// Looks at a few masks of the source, as check_samples() does. Throws TaskMisfit for a class without a name.
void check_masks(const MaskClasses& classes, const std::string& setting, std::int64_t max_samples);

/// [H, W] int64. Throws TaskMisfit for a class without a name.
at::Tensor mask_of(const std::vector<std::uint8_t>& mask, config::Size size, const std::string& key,
                   const MaskClasses& classes);

/// The mask of each prepared sample, likewise.
std::vector<at::Tensor> masks_of(const std::vector<EvaluationSample>& samples, const MaskClasses& classes);

/// Scores images one by one, and keeps some for the report.
class SegmentationRecord {
 public:
  /// For a pass over `total` samples; `pictures`: the report shows some of them.
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
