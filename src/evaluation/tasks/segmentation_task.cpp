#include <ATen/ATen.h>

#include "src/evaluation/tasks/check_samples.h"
#include "src/evaluation/tasks/examples.h"
#include "src/evaluation/tasks/outcomes.h"
#include "src/evaluation/tasks/pass.h"
#include "src/evaluation/tasks/tasks.h"
#include <tessera/evaluation/metrics/segmentation.h>
#include <tessera/models/last_block.h>

namespace tessera {
namespace {

constexpr std::int64_t kIgnored = 255;

std::vector<std::uint8_t> to_bytes(const at::Tensor& mask) {
  const at::Tensor flat = mask.to(at::kByte).contiguous();
  return {flat.const_data_ptr<std::uint8_t>(), flat.const_data_ptr<std::uint8_t>() + flat.numel()};
}

class SegmentationTask final : public EvaluationTask {
 public:
  explicit SegmentationTask(SegmentationSettings settings) : settings_(std::move(settings)) {}

  void check(const EvaluationContext& context) const override {
    const auto source = open_source(settings_.data.source, context.source, "segmentation.source");
    const std::int64_t classes = std::ssize(class_names_for(settings_.classes, *source, "segmentation"));
    check_samples(*source, "source", settings_.data.max_samples, masked(),
                  [&](const Sample& sample) { check_mask(sample.mask, sample.key, classes, *source); });
  }

  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    const auto source = open_source(settings_.data.source, context.source, "segmentation.source");
    const std::vector<std::string> names = class_names_for(settings_.classes, *source, "segmentation");
    const at::Tensor classes = embed_classes(embedder, names, settings_.templates).global;  // [C, D]

    metrics::SegmentationOptions options;
    options.grid = {embedder.grid().height, embedder.grid().width};
    options.upsample = settings_.upsample;
    options.candidates = settings_.candidates;
    if (source->background_class() >= 0) options.background_index = source->background_class();
    const bool by_groups = settings_.by == "groups";
    metrics::SegmentationMeter meter(std::ssize(names), options.background_index, kIgnored);

    TaskResult result;
    result.classes = names;
    result.prompts = settings_.templates.items;
    const Pass pass{
        .embedder = embedder,
        .context = context,
        .source = source,
        .max_samples = settings_.data.max_samples,
        .required = masked(),
        .needs = {.dense = !by_groups,
                  .slots = by_groups,
                  .attention = by_groups,
                  .last_block = last_block_named(settings_.last_block)}};
    ExampleChooser examples(pass.total());
    pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
      const at::Tensor targets = masks_of(samples, std::ssize(names), *source);
      const at::Tensor found = by_groups ? predict_by_groups(features, classes, targets, options)
                                         : predict_by_patches(features, classes, targets, options);
      const at::Tensor iou = meter.add(found, targets);
      for (std::size_t i = 0; context.pictures && i < samples.size(); ++i) {
        if (!examples.choose(samples[i].index)) continue;
        const auto row = static_cast<std::int64_t>(i);
        result.pictures.segmentation.push_back(
            {to_image(samples[i].pixels), samples[i].mask, to_bytes(found[row]), iou[row].item<double>()});
      }
    });

    const metrics::SegmentationScores scores = meter.scores();
    result.metrics = {{"image_miou", scores.image_miou},
                      {"dataset_miou", scores.dataset_miou},
                      {"pixel_accuracy", scores.pixel_accuracy}};
    result.outcomes = outcomes_of_pictures(scores, source->background_class());
    if (context.pictures) add_classes(names, source->background_class(), scores, result.pictures);
    return result;
  }

 private:
  static at::Tensor predict_by_patches(const TowerFeatures& images, const at::Tensor& classes,
                                       const at::Tensor& targets, const metrics::SegmentationOptions& options) {
    if (!images.dense.defined()) user_error("segmentation: this model's image tower gives no patch embeddings");
    if (images.dense.size(2) != classes.size(1))
      user_error("segmentation: this model's patch embeddings are ", images.dense.size(2),
                 " wide and those of its texts ", classes.size(1),
                 ": patches are compared with texts where the read-out keeps the tokens' width (gap, cls, max, eos)");
    return metrics::zero_shot_segmentation(images.dense, classes, targets, options).prediction;
  }

  static at::Tensor predict_by_groups(const TowerFeatures& images, const at::Tensor& classes, const at::Tensor& targets,
                                      const metrics::SegmentationOptions& options) {
    if (!images.slots.defined() || !images.attention.defined() || images.slots.size(2) != classes.size(1))
      user_error("segmentation.by: this model's image tower gives no groups in the space of its texts: take one that ",
                 "reads out by groups, as groupvit does, or by: patches");
    return metrics::zero_shot_segmentation_by_groups(images.slots, images.attention, classes, targets, options);
  }

  static Required masked() {
    return {[](const Sample& sample) { return !sample.mask.empty(); }, "no_mask", "a mask", "mask"};
  }

  /// Throws TaskMisfit for a class without a name.
  static void check_mask(const std::vector<std::uint8_t>& mask, const std::string& key, std::int64_t classes,
                         const Source& source) {
    for (const std::uint8_t value : mask) {
      if (value < classes || value == kIgnored) continue;
      throw TaskMisfit(concat("the mask of sample ", key, " of ", source.describe(), " holds class ",
                              static_cast<int>(value), ", but there are only ", classes, " class names (0 to ",
                              classes - 1, "): list one for each value in segmentation.classes"));
    }
  }

  /// [B, H, W] int64. Throws UserError for a class without a name.
  static at::Tensor masks_of(const std::vector<EvaluationSample>& samples, std::int64_t classes, const Source& source) {
    std::vector<at::Tensor> targets;
    for (const EvaluationSample& sample : samples) {
      check_mask(sample.mask, sample.sample.key, classes, source);
      targets.push_back(at::from_blob(const_cast<std::uint8_t*>(sample.mask.data()),
                                      {sample.pixels.size(1), sample.pixels.size(2)}, at::kByte)
                            .to(at::kLong));
    }
    return at::stack(targets);
  }

  static std::vector<report::Outcomes> outcomes_of_pictures(const metrics::SegmentationScores& scores,
                                                            std::int64_t background) {
    at::Tensor present = scores.image_union.gt(0);  // [B, C]
    if (background >= 0) present.select(1, background).fill_(false);
    const at::Tensor place = present.nonzero();  // [E, 2]: picture, class
    return {report::mean_outcomes("image_miou", to_vector<double>(scores.image_iou)),
            outcomes_of("dataset_miou", {.part = scores.image_intersection.masked_select(present),
                                         .whole = scores.image_union.masked_select(present),
                                         .sample = place.select(1, 0),
                                         .group = place.select(1, 1)}),
            outcomes_of("pixel_accuracy", {.part = scores.image_right, .whole = scores.image_pixels})};
  }

  static void add_classes(const std::vector<std::string>& names, std::int64_t background,
                          const metrics::SegmentationScores& scores, TaskPictures& pictures) {
    pictures.class_names = names;
    pictures.background_class = background;
    pictures.class_measure = "IoU";
    for (std::size_t c = 0; c < names.size(); ++c) {
      const double iou = scores.class_iou[static_cast<std::int64_t>(c)].item<double>();
      if (iou >= 0 && static_cast<std::int64_t>(c) != background) pictures.class_values.emplace_back(names[c], iou);
    }
  }

  SegmentationSettings settings_;
};

}  // namespace

std::shared_ptr<EvaluationTask> make_segmentation_task(const SegmentationSettings& settings) {
  return std::make_shared<SegmentationTask>(settings);
}

}  // namespace tessera
