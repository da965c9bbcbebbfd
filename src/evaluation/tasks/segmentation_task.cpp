#include "src/evaluation/encode.h"
#include "src/evaluation/tasks/tasks.h"
#include <tessera/evaluation/metrics/segmentation.h>
#include <tessera/evaluation/metrics/zero_shot.h>

namespace tessera {
namespace {

constexpr std::int64_t kIgnored = 255;

std::vector<std::uint8_t> to_bytes(const at::Tensor& mask) {
  const at::Tensor flat = mask.to(at::kCPU, at::kByte).contiguous();
  return {flat.const_data_ptr<std::uint8_t>(), flat.const_data_ptr<std::uint8_t>() + flat.numel()};
}

class SegmentationTask final : public EvaluationTask {
 public:
  explicit SegmentationTask(SegmentationSettings settings) : settings_(std::move(settings)) {}

  void check(const EvaluationContext& context) const override {
    const auto source = open_source(settings_.data.source, context.source, "segmentation.source");
    class_names_for(settings_.classes, *source, "segmentation");
  }

  TaskResult run(DualEncoder& model, const Tokenizer& tokenizer, const EvaluationContext& context) const override {
    const auto source = open_source(settings_.data.source, context.source, "segmentation.source");
    const std::vector<std::string> names = class_names_for(settings_.classes, *source, "segmentation");
    const auto classes = static_cast<std::int64_t>(names.size());
    const ClassPrompts prompts = encode_prompts(model, tokenizer, names, settings_.templates, context);
    const at::Tensor embeddings = metrics::class_embeddings(prompts.features, prompts.owner, classes);

    metrics::SegmentationOptions options;
    options.grid = {model.grid().height, model.grid().width};
    options.upsample = settings_.upsample;
    options.candidates = settings_.candidates;
    if (source->background_class() >= 0) options.background_index = source->background_class();
    metrics::SegmentationMeter meter(classes, options.background_index, kIgnored);

    TaskResult result;
    const std::vector<std::int64_t> wanted =
        spread(settings_.data.max_samples < 0 ? source->size() : std::min(source->size(), settings_.data.max_samples),
               kExamplePictures);
    std::int64_t with_mask = 0;
    encode_source(model, source, context, settings_.data.max_samples, true, result,
                  [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
                    if (!features.dense.defined())
                      user_error("segmentation: this model's image tower gives no patch embeddings");
                    const Batch batch = masks_of(samples, classes, *source);
                    const auto kept = static_cast<std::int64_t>(batch.rows.size());
                    const auto without = static_cast<std::int64_t>(samples.size()) - kept;
                    if (without > 0) result.skipped["no_mask"] += without;
                    result.samples -= without;
                    with_mask += kept;
                    if (kept == 0) return;
                    const at::Tensor dense =
                        features.dense.to(at::kCPU, at::kFloat).index_select(0, at::tensor(batch.rows, at::kLong));
                    const auto found = metrics::zero_shot_segmentation(dense, embeddings, batch.targets, options);
                    const at::Tensor iou = meter.add(found.prediction, batch.targets);
                    if (!context.pictures) return;
                    for (std::int64_t b = 0; b < kept; ++b) {
                      const EvaluationSample& sample =
                          samples[static_cast<std::size_t>(batch.rows[static_cast<std::size_t>(b)])];
                      if (std::find(wanted.begin(), wanted.end(), sample.index) == wanted.end()) continue;
                      result.pictures.segmentation.push_back({to_image(sample.pixels), to_bytes(batch.targets[b]),
                                                              to_bytes(found.prediction[b]), iou[b].item<double>()});
                    }
                  });
    if (with_mask == 0) user_error("segmentation: no sample of ", source->describe(), " has a mask");

    const metrics::SegmentationScores scores = meter.scores();
    result.metrics = {{"image_miou", scores.image_miou},
                      {"dataset_miou", scores.dataset_miou},
                      {"pixel_accuracy", scores.pixel_accuracy}};
    if (context.pictures) {
      result.pictures.class_names = names;
      result.pictures.background_class = source->background_class();
      for (std::int64_t c = 0; c < classes; ++c) {
        const double iou = scores.class_iou[c].item<double>();
        if (iou >= 0 && c != source->background_class()) {
          result.pictures.class_values.emplace_back(names[static_cast<std::size_t>(c)], iou);
        }
      }
    }
    return result;
  }

 private:
  struct Batch {
    std::vector<std::int64_t> rows;  // samples that have a mask
    at::Tensor targets;              // [rows, H, W] int64
  };

  static Batch masks_of(const std::vector<EvaluationSample>& samples, std::int64_t classes, const Source& source) {
    Batch out;
    std::vector<at::Tensor> targets;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const EvaluationSample& sample = samples[i];
      if (sample.mask.empty()) continue;
      for (const std::uint8_t value : sample.mask) {
        if (value < classes || value == kIgnored) continue;
        user_error("segmentation: the mask of sample ", sample.sample.key, " of ", source.describe(), " holds class ",
                   static_cast<int>(value), ", but there are only ", classes, " class names (0 to ", classes - 1, ")");
      }
      const std::int64_t height = sample.pixels.size(1), width = sample.pixels.size(2);
      out.rows.push_back(static_cast<std::int64_t>(i));
      targets.push_back(
          at::from_blob(const_cast<std::uint8_t*>(sample.mask.data()), {height, width}, at::kByte).to(at::kLong));
    }
    if (!targets.empty()) out.targets = at::stack(targets);
    return out;
  }

  SegmentationSettings settings_;
};

}  // namespace

std::shared_ptr<EvaluationTask> make_segmentation_task(const SegmentationSettings& settings) {
  return std::make_shared<SegmentationTask>(settings);
}

}  // namespace tessera
