#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "src/evaluation/metrics/segmentation.h"
#include "src/evaluation/tasks/pass.h"
#include "src/evaluation/tasks/results.h"

namespace tessera {

/// The mask value of pixels whose class is unknown.
inline constexpr std::int64_t kIgnoredClass = 255;

/// The classes of a source's masks.
struct MaskClasses {
  std::shared_ptr<const Source> source;
  std::vector<std::string> names;  // class name of each mask value
  std::string setting;             // the setting that lists them, for messages ("segmentation.classes")
  std::vector<std::string> ignored{};  // names of the classes whose pixels are set to kIgnoredClass
  bool drawn = true;                   // false if the data have no masks, so that nothing can be measured
  std::vector<std::string> own_names{};  // the data's names for the same classes; empty if unknown

  std::int64_t count() const { return std::ssize(names); }
  /// Returns the index of the background class: that of the source's setting or, if the source sets none, of the first class called
  /// background (in any case), by the task or, if there is none, by the data. Returns nullopt if there is none or it is ignored.
  std::optional<std::int64_t> background() const;
  bool is_ignored(std::int64_t value) const;
  /// Returns sentences on the background and on ignored classes, for TaskResult::notes.
  std::vector<std::string> notes() const;
};

/// Returns the classes of masks. `own` are the data's names for the classes `names`; other numbers of names do not count. Ignored are the
/// classes in `ignored`, and those whose names, in `names` or `own`, say that their pixels have no class, such as void and unlabeled,
/// unless the source's background class has such a name.
MaskClasses mask_classes(std::shared_ptr<const Source> source, std::vector<std::string> names,
                         const std::string& setting, std::vector<std::string> ignored, std::vector<std::string> own);

/// Returns the requirement that a sample has a mask.
Required masked();

/// Checks a few masks of the source, as check_samples() does. Throws TaskMisfit if a mask has a class without a name.
void check_masks(const MaskClasses& classes, const std::string& setting, std::int64_t max_samples);

/// Returns the mask as a tensor, int64 [H, W]; all kIgnoredClass if the sample has no mask. Throws TaskMisfit if the mask has a class
/// without a name.
at::Tensor mask_of(const std::vector<std::uint8_t>& mask, config::Size size, const std::string& key, const MaskClasses& classes);

/// Returns the mask of each prepared sample. Throws like mask_of().
std::vector<at::Tensor> make_masks(const std::vector<EvaluationSample>& samples, const MaskClasses& classes);

/// The end of the explanation of a task that measures the overlap of regions (EvaluationTask::rule()).
inline constexpr const char* kIouRule =
    " IoU is the overlap of the predicted and the true region of a class divided by their union. image_miou is its mean over the "
    "classes of each image, then over images. dataset_miou is its mean over classes, each computed over all images. Neither counts "
    "the background; dataset_miou_with_background does. pixel_accuracy is the share of pixels with the right class.";

/// Scores images one by one, and keeps some of them for the report.
class SegmentationRecord {
 public:
  /// `total` is the number of samples of the pass. If `images` is true, some images are kept for the report.
  SegmentationRecord(MaskClasses classes, std::int64_t total, bool images);

  /// Adds a sample. target and found: int64 [H, W]. image() returns the sample's image.
  void add(const EvaluationSample& sample, const at::Tensor& target, const at::Tensor& found, const std::function<Image()>& image);
  /// Adds the metrics image_miou, dataset_miou, pixel_accuracy and, if there is a background class, dataset_miou_with_background to
  /// the result. Also adds the contribution of each image to the first three metrics, the images that were kept for the report, and notes
  /// on the classes. Without masks, adds no metrics.
  void write(TaskResult& result);

 private:
  std::vector<std::string> notes() const;

  MaskClasses classes_;
  metrics::SegmentationMeter meter_;
  ExampleChooser examples_;
  bool images_;
  at::Tensor in_masks_;  // bool [256], true for the mask values that occurred
  nlohmann::json shown_ = nlohmann::json::array();  // sheets (src/report/cards.h)
};

}  // namespace tessera
