#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include <ATen/ATen.h>

#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/tasks/check_samples.h"
#include "src/evaluation/tasks/class_queries.h"
#include "src/evaluation/tasks/conditioned.h"
#include "src/evaluation/tasks/examples.h"
#include "src/evaluation/tasks/outcomes.h"
#include "src/evaluation/tasks/pass.h"
#include "src/evaluation/tasks/patch_scores.h"
#include "src/evaluation/tasks/picture_windows.h"
#include "src/evaluation/tasks/tasks.h"
#include <tessera/data/image/transforms.h>
#include <tessera/evaluation/metrics/segmentation.h>
#include <tessera/models/last_block.h>

namespace tessera {
namespace {

constexpr std::int64_t kIgnored = 255;

std::vector<std::uint8_t> to_bytes(const at::Tensor& mask) {
  const at::Tensor flat = mask.to(at::kByte).contiguous();
  return {flat.const_data_ptr<std::uint8_t>(), flat.const_data_ptr<std::uint8_t>() + flat.numel()};
}

/// The classes of a task and its data.
struct MaskClasses {
  std::shared_ptr<const Source> source;
  ClassQueries queries;

  std::int64_t count() const { return std::ssize(queries.classes); }
  std::optional<std::int64_t> background() const {
    const std::int64_t index = source->background_class();
    return index < 0 ? std::nullopt : std::optional(index);
  }
};

/// As the report shows it: no larger than people look at. target and found [H, W].
SegmentationExample to_example(const Image& image, const at::Tensor& target, const at::Tensor& found, double iou) {
  constexpr std::int64_t kShown = 224;  // pixels of the shorter side
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

/// Scores pictures one by one, and keeps some for the report.
struct SegmentationRecord {
  metrics::SegmentationMeter meter;
  ExampleChooser examples;
  bool pictures;
  std::vector<SegmentationExample> shown = {};

  /// target and found [H, W] int64; image() gives the picture of the sample at `index`.
  template <class GiveImage>
  void add(std::int64_t index, const at::Tensor& target, const at::Tensor& found, const GiveImage& image) {
    const double iou = meter.add(found.unsqueeze(0), target.unsqueeze(0)).item<double>();
    if (pictures && examples.choose(index)) shown.push_back(to_example(image(), target, found, iou));
  }
};

class SegmentationTask final : public EvaluationTask {
 public:
  explicit SegmentationTask(SegmentationSettings settings) : settings_(std::move(settings)) {}

  void check(const EvaluationContext& context) const override {
    check_conditioned(context, "segmentation.patches", settings_.patches, "cosine");
    const MaskClasses classes = classes_in(context);
    check_samples(*classes.source, "source", settings_.data.max_samples, masked(),
                  [&](const Sample& sample) { check_mask(sample.mask, sample.key, classes); });
  }

  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    if (settings_.patches == "cosine") {
      const MaskClasses classes = classes_in(context);
      const TowerFeatures names = embed_classes(embedder, classes.queries.names, settings_.templates);
      return measure(embedder, context, classes, names,
                     cosines_of_patches(names.global, last_block_named(settings_.last_block)));
    }
    const ConditionedEmbedder through =
        conditioned(embedder, context, "segmentation.patches", settings_.patches, "cosine");
    const MaskClasses classes = classes_in(context);
    const TowerFeatures names = embed_classes(through, classes.queries.names, settings_.templates);
    TaskResult result = measure(through, context, classes, names,
                                conditioned_patches(through, names, settings_.patches == "attention"));
    result.data += concat(" (patches: ", settings_.patches, ")");
    return result;
  }

 private:
  TaskResult measure(const Embedder& embedder, const EvaluationContext& context, const MaskClasses& classes,
                     const TowerFeatures& names, const PatchScores& patches) const {
    const metrics::SegmentationOptions options = options_for(embedder, context, classes);
    const Pass pass{.embedder = embedder,
                    .context = context,
                    .source = classes.source,
                    .max_samples = settings_.data.max_samples,
                    .required = masked(),
                    .needs = by_groups() ? ViewNeeds{.slots = true, .attention = true} : patches.needs,
                    .pictures = settings_.windows ? EvaluationPictures::decoded : EvaluationPictures::prepared};
    SegmentationRecord record{.meter = {classes.count(), options.background_index, kIgnored},
                              .examples = ExampleChooser(pass.total()),
                              .pictures = context.pictures};
    TaskResult result;
    result.classes = classes.queries.classes;
    result.prompts = settings_.templates.items;
    pass.run(result, settings_.windows ? by_windows(pass, patches, options, classes, record)
                                       : by_whole_pictures(names.global, patches, options, classes, record));
    write_scores(record, classes, result);
    return result;
  }

  /// Throws TaskMisfit where the task and its data do not have as many classes.
  MaskClasses classes_in(const EvaluationContext& context) const {
    const auto source = open_source(settings_.data.source, context.source, "segmentation.source");
    const std::vector<std::string> names = class_names_for(settings_.classes, *source, "segmentation");
    const auto given = std::ssize(names), known = std::ssize(source->class_names());
    if (known > 0 && given != known)
      throw TaskMisfit(concat("segmentation.classes lists ", given, given == 1 ? " class" : " classes", ", but ",
                              source->describe(), " has ", known, ": list one for each, in the data's order"));
    if (settings_.background_threshold && source->background_class() < 0)
      throw TaskMisfit(concat("segmentation.background_threshold is set, but ", source->describe(),
                              " has no background class: set its background_class, or leave the threshold out"));
    return {source, class_queries(names, "segmentation.classes")};
  }

  metrics::SegmentationOptions options_for(const Embedder& embedder, const EvaluationContext& context,
                                           const MaskClasses& classes) const {
    metrics::SegmentationOptions options;
    if (!keeps_shapes(embedder.preprocessing()) || by_groups())
      options.grid = {embedder.grid().height, embedder.grid().width};
    options.upsample = settings_.upsample;
    options.candidates = settings_.candidates;
    options.background_index = classes.background();
    options.class_of_name = classes.queries.class_of;
    if (settings_.background_threshold) {
      options.background_threshold = {*settings_.background_threshold, std::nullopt};
      if (settings_.threshold_of == "probability")
        options.background_threshold->logit_scale = settings_.logit_scale.value_or(context.logit_scale);
    }
    return options;
  }

  bool by_groups() const { return settings_.by == "groups"; }

  /// Pictures and masks as the model's preprocessing cuts them. What is taken by reference outlives the pass.
  BatchBody by_whole_pictures(const at::Tensor& names, const PatchScores& patches,
                              const metrics::SegmentationOptions& options, const MaskClasses& classes,
                              SegmentationRecord& record) const {
    return [this, names, &patches, &options, &classes, &record](const std::vector<EvaluationSample>& samples,
                                                      const TowerFeatures& features) {
      const std::vector<at::Tensor> targets = masks_of(samples, classes);
      const std::vector<at::Tensor> found = by_groups()
                                                ? predict_by_groups(features, names, at::stack(targets), options).unbind()
                                                : predict_by_patches(features, patches, targets, options);
      for (std::size_t i = 0; i < samples.size(); ++i)
        record.add(samples[i].index, targets[i], found[i], [&] { return to_image(samples[i].pixels); });
    };
  }

  /// Whole pictures against masks of their own size, likewise.
  BatchBody by_windows(const Pass& pass, const PatchScores& patches, const metrics::SegmentationOptions& options,
                       const MaskClasses& classes, SegmentationRecord& record) const {
    const PictureWindows windows(pass.embedder, *settings_.windows, patches, pass.context.batch_size);
    return [windows, &options, &classes, &record](const std::vector<EvaluationSample>& samples, const TowerFeatures&) {
      for (const EvaluationSample& read : samples) {
        const Sample& sample = read.sample;
        const at::Tensor target = mask_of(sample.mask, {sample.image.height, sample.image.width}, sample.key, classes);
        const at::Tensor found = metrics::segment_pixels(windows.scores(sample.image, sample.key), target, options);
        record.add(read.index, target, found, [&] { return sample.image; });
      }
    };
  }

  static void write_scores(SegmentationRecord& record, const MaskClasses& classes, TaskResult& result) {
    const metrics::SegmentationScores scores = record.meter.scores();
    result.metrics = {{"image_miou", scores.image_miou},
                      {"dataset_miou", scores.dataset_miou},
                      {"pixel_accuracy", scores.pixel_accuracy}};
    if (classes.background())
      result.metrics.emplace_back("dataset_miou_with_background", metrics::mean_of_present(scores.class_iou));
    result.outcomes = outcomes_of_pictures(scores, classes.source->background_class());
    result.pictures.segmentation = std::move(record.shown);
    if (record.pictures)
      add_classes(classes.queries.classes, classes.source->background_class(), scores, result.pictures);
  }

  static std::vector<at::Tensor> predict_by_patches(const TowerFeatures& images, const PatchScores& patches,
                                                    const std::vector<at::Tensor>& targets,
                                                    const metrics::SegmentationOptions& options) {
    const std::vector<at::Tensor> maps = images.grids.defined()
                                             ? maps_of_own_shapes(images, patches)
                                             : patches.maps(images, {options.grid[0], options.grid[1]}).unbind();
    std::vector<at::Tensor> found;
    for (std::size_t i = 0; i < maps.size(); ++i) found.push_back(metrics::segment_pixels(maps[i], targets[i], options));
    return found;
  }

  /// Of each picture's own patches.
  static std::vector<at::Tensor> maps_of_own_shapes(const TowerFeatures& images, const PatchScores& patches) {
    std::vector<at::Tensor> maps;
    for (std::int64_t i = 0; i < images.grids.size(0); ++i) {
      const auto* sides = images.grids.const_data_ptr<std::int64_t>() + 2 * i;
      const auto real = [&](const at::Tensor& tensor) {
        return tensor.defined() ? tensor.narrow(0, i, 1).narrow(1, 0, sides[0] * sides[1]) : tensor;
      };
      TowerFeatures one;
      one.global = images.global.narrow(0, i, 1);
      one.tokens = real(images.tokens);
      one.dense = real(images.dense);
      maps.push_back(patches.maps(one, {sides[0], sides[1]})[0]);
    }
    return maps;
  }

  static at::Tensor predict_by_groups(const TowerFeatures& images, const at::Tensor& names, const at::Tensor& targets,
                                      const metrics::SegmentationOptions& options) {
    if (!images.slots.defined() || !images.attention.defined() || images.slots.size(2) != names.size(1))
      user_error("segmentation.by: this model's image tower gives no groups in the space of its texts: take one that ",
                 "reads out by groups, as groupvit does, or by: patches");
    return metrics::zero_shot_segmentation_by_groups(images.slots, images.attention, names, targets, options);
  }

  static Required masked() {
    return {[](const Sample& sample) { return !sample.mask.empty(); }, "no_mask", "a mask", "mask"};
  }

  /// Throws TaskMisfit for a class without a name.
  static void check_mask(const std::vector<std::uint8_t>& mask, const std::string& key, const MaskClasses& classes) {
    const std::int64_t count = classes.count();
    for (const std::uint8_t value : mask) {
      if (value < count || value == kIgnored) continue;
      throw TaskMisfit(concat("the mask of sample ", key, " of ", classes.source->describe(), " holds class ",
                              static_cast<int>(value), ", but there are only ", count, " class names (0 to ", count - 1,
                              "): list one for each value in segmentation.classes"));
    }
  }

  /// [H, W] int64. Throws TaskMisfit for a class without a name.
  static at::Tensor mask_of(const std::vector<std::uint8_t>& mask, config::Size size, const std::string& key,
                            const MaskClasses& classes) {
    check_mask(mask, key, classes);
    return at::from_blob(const_cast<std::uint8_t*>(mask.data()), {size.height, size.width}, at::kByte).to(at::kLong);
  }

  /// Of each sample, likewise.
  static std::vector<at::Tensor> masks_of(const std::vector<EvaluationSample>& samples, const MaskClasses& classes) {
    std::vector<at::Tensor> targets;
    for (const EvaluationSample& sample : samples)
      targets.push_back(
          mask_of(sample.mask, {sample.pixels.size(1), sample.pixels.size(2)}, sample.sample.key, classes));
    return targets;
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
