#include "src/evaluation/tasks/segmentation_record.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/tasks/check_samples.h"
#include "src/evaluation/tasks/outcomes.h"
#include <tessera/base/text.h>
#include <tessera/data/image/transforms.h>

namespace tessera {
namespace {

std::vector<std::uint8_t> to_bytes(const at::Tensor& mask) {
  return to_vector<std::uint8_t>(mask.to(at::kByte));
}

/// Makes an example for the report, shrunk to display size. target and found: classes, [H, W].
SegmentationExample to_example(const Image& image, const at::Tensor& target, const at::Tensor& found, double iou) {
  constexpr std::int64_t kShown = 224;  // maximum length of an example's shorter side, in pixels
  const double ratio =
      std::min(1.0, static_cast<double>(kShown) / static_cast<double>(std::min(image.height, image.width)));
  Preprocessing shown;
  shown.resize_mode = "squash";
  shown.image_size = {std::llround(static_cast<double>(image.height) * ratio),
                      std::llround(static_cast<double>(image.width) * ratio)};
  const auto smaller = [&](const at::Tensor& mask) {
    return preprocess_mask(to_bytes(mask), image.height, image.width, shown);
  };
  return {preprocess(image, shown), smaller(target), smaller(found), iou};
}

void check_mask(const std::vector<std::uint8_t>& mask, const std::string& key, const MaskClasses& classes) {
  const std::int64_t count = classes.count();
  for (const std::uint8_t value : mask) {
    if (value < count || value == kIgnoredClass) continue;
    throw TaskMisfit(concat("the mask of sample ", key, " of ", classes.source->describe(), " holds class ",
                            static_cast<int>(value), ", but there are only ", count, " class names (0 to ", count - 1,
                            "): list one for each value in ", classes.setting));
  }
}

std::vector<report::Outcomes> outcomes_of_pictures(const metrics::SegmentationScores& scores,
                                                   std::optional<std::int64_t> background) {
  at::Tensor present = scores.image_union.gt(0);  // [B, C]
  if (background) present.select(1, *background).fill_(false);
  const at::Tensor place = present.nonzero();  // [E, 2]: image, class
  return {report::mean_outcomes("image_miou", to_vector<double>(scores.image_iou)),
          outcomes_of("dataset_miou", {.part = scores.image_intersection.masked_select(present),
                                       .whole = scores.image_union.masked_select(present),
                                       .sample = place.select(1, 0),
                                       .group = place.select(1, 1)}),
          outcomes_of("pixel_accuracy", {.part = scores.image_right, .whole = scores.image_pixels})};
}

void add_classes(const MaskClasses& classes, const metrics::SegmentationScores& scores, TaskPictures& pictures) {
  const std::int64_t background = classes.background().value_or(-1);
  pictures.class_names = classes.names;
  pictures.background_class = background;
  pictures.class_measure = "IoU";
  for (std::int64_t c = 0; c < classes.count(); ++c) {
    const double iou = scores.class_iou[c].item<double>();
    if (iou >= 0 && c != background) pictures.class_values.emplace_back(classes.names[static_cast<std::size_t>(c)], iou);
  }
}

}  // namespace

std::optional<std::int64_t> MaskClasses::background() const {
  const std::int64_t index = source->background_class();
  return index < 0 || is_ignored(index) ? std::nullopt : std::optional(index);
}

bool MaskClasses::is_ignored(std::int64_t value) const {
  return value < count() && std::ranges::find(ignored, names[static_cast<std::size_t>(value)]) != ignored.end();
}

Required masked() {
  return {[](const Sample& sample) { return !sample.mask.empty(); }, "no_mask", "a mask", "mask"};
}

void check_masks(const MaskClasses& classes, const std::string& setting, std::int64_t max_samples) {
  check_samples(*classes.source, setting, max_samples, masked(),
                [&](const Sample& sample) { check_mask(sample.mask, sample.key, classes); });
}

at::Tensor mask_of(const std::vector<std::uint8_t>& mask, config::Size size, const std::string& key,
                   const MaskClasses& classes) {
  check_mask(mask, key, classes);
  at::Tensor out =
      at::from_blob(const_cast<std::uint8_t*>(mask.data()), {size.height, size.width}, at::kByte).to(at::kLong);
  for (std::int64_t c = 0; c < classes.count(); ++c)
    if (classes.is_ignored(c)) out.masked_fill_(out == c, kIgnoredClass);
  return out;
}

std::vector<at::Tensor> masks_of(const std::vector<EvaluationSample>& samples, const MaskClasses& classes) {
  std::vector<at::Tensor> targets;
  for (const EvaluationSample& sample : samples)
    targets.push_back(mask_of(sample.mask, {sample.pixels.size(1), sample.pixels.size(2)}, sample.sample.key, classes));
  return targets;
}

SegmentationRecord::SegmentationRecord(MaskClasses classes, std::int64_t total, bool pictures)
    : classes_(std::move(classes)),
      meter_(classes_.count(), classes_.background(), kIgnoredClass),
      examples_(total),
      pictures_(pictures) {}

void SegmentationRecord::add(std::int64_t index, const at::Tensor& target, const at::Tensor& found,
                             const std::function<Image()>& image) {
  const double iou = meter_.add(found.unsqueeze(0), target.unsqueeze(0)).item<double>();
  if (pictures_ && examples_.choose(index)) shown_.push_back(to_example(image(), target, found, iou));
}

void SegmentationRecord::write(TaskResult& result) {
  const metrics::SegmentationScores scores = meter_.scores();
  result.metrics = {{"image_miou", scores.image_miou},
                    {"dataset_miou", scores.dataset_miou},
                    {"pixel_accuracy", scores.pixel_accuracy}};
  if (classes_.background())
    result.metrics.emplace_back("dataset_miou_with_background", metrics::mean_of_present(scores.class_iou));
  result.outcomes = outcomes_of_pictures(scores, classes_.background());
  result.pictures.segmentation = std::move(shown_);
  if (pictures_) add_classes(classes_, scores, result.pictures);
}

}  // namespace tessera
