// The task segmentation_probe, which segments images by a linear classifier on frozen patch features.
#include "src/evaluation/tasks/candidates.h"
#include "src/evaluation/tasks/data_task.h"
#include "src/evaluation/tasks/probe_fit.h"
#include "src/evaluation/tasks/segmentation_record.h"
#include <tessera/base/random.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

struct SegmentationProbeSettings : TrainTestData {
  TextList classes;
  std::vector<std::string> ignore;
  double l2 = 1e-4;
  std::int64_t patches_per_image = 64;
};

template <class Visitor>
void fields(Visitor& v, SegmentationProbeSettings& s) {
  train_test_fields(v, s, "data set with masks to fit the classifier on; null: the run's training data");
  v("classes", s.classes, "class names, one per mask value; empty: those of the source");
  v("ignore", s.ignore,
    "names of classes whose pixels are left out of the fit and of the scores, such as [background], which would otherwise dominate");
  v("l2", s.l2, "weight of the L2 penalty of the classifier", config::at_least(0));
  v("patches_per_image", s.patches_per_image, "fit the classifier on at most this many patches of each training image",
    config::at_least(1));
}

/// Maps target [H, W] to the class of each patch, [rows * columns]: the most frequent class of its pixels (at ties, the lower
/// class), or kIgnoredClass if none of its pixels has a class.
at::Tensor classes_of_patches(const at::Tensor& target, config::Size grid, std::int64_t classes) {
  const std::int64_t height = target.size(0) / grid.height, width = target.size(1) / grid.width;
  const at::Tensor pixels = target.slice(0, 0, grid.height * height)
                                .slice(1, 0, grid.width * width)
                                .reshape({grid.height, height, grid.width, width})
                                .permute({0, 2, 1, 3})
                                .flatten(0, 1)
                                .flatten(1);  // [P, pixels]
  const at::Tensor counts =
      at::zeros({pixels.size(0), kIgnoredClass + 1}, pixels.options()).scatter_add_(1, pixels, at::ones_like(pixels)).slice(1, 0, classes);
  const auto [most, label] = counts.max(1);
  return label.masked_fill(most == 0, kIgnoredClass);
}

class SegmentationProbeTask final : public TrainTestTask<SegmentationProbeSettings> {
 public:
  std::string rule() const override {
    return std::string("Each pixel takes the class that a linear classifier on the image encoder's patches predicts among all classes; the "
                       "classifier is fitted on the training data.") + kIouRule;
  }

  void check(const EvaluationContext& context) const override {
    check_masks(classes_in(open_source(train_data(), context)), "train", settings_.max_train_samples);
    check_masks(classes_in(open_source(test_data(), context)), "source", settings_.max_samples);
  }

  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    const Pass test_data = test_pass(embedder, context, {.encoder_tokens = true});
    const MaskClasses classes = classes_in(test_data.source);
    const Pass train_data = train_pass(embedder, context, {.encoder_tokens = true});
    const LabeledFeatures train = train_patches(train_data, classes);
    const auto [deviation, mean] = at::std_mean(train.features, 0, /*correction=*/0);
    const at::Tensor scale = deviation.clamp_min(kLeastDeviation);
    const metrics::LogisticRegression fit = metrics::fit_logistic_regression(
        (train.features - mean) / scale, train.labels, classes.count(), settings_.l2, nullptr, kTolerance, kIterations);
    TaskResult result;
    SegmentationRecord record(classes, test_data.total(), context.images);
    const metrics::SegmentationOptions options = {.grid = {embedder.grid().height, embedder.grid().width}, .candidates = "all"};
    test_data.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
      const std::vector<at::Tensor> targets = make_masks(samples, classes);
      const at::Tensor scaled = (patches_of(features, "segmentation_probe") - mean) / scale;
      const at::Tensor logits = at::linear(scaled.to(at::kDouble), fit.weight, fit.bias)
                                    .transpose(1, 2)
                                    .unflatten(2, {options.grid[0], options.grid[1]})
                                    .to(at::kFloat);  // [B, C, rows, columns]
      for (std::size_t i = 0; i < samples.size(); ++i)
        record.add(samples[i], targets[i],
                   metrics::segment_pixels(logits[static_cast<std::int64_t>(i)], targets[i], options),
                   [&] { return to_image(samples[i].pixels); });
    });
    result.classes = classes.names;
    result.data += concat(" (fitted on ", with_thousands(train.labels.size(0)), " patches of ", train_data.source->describe(), ")");
    record.write(result);
    return result;
  }

 private:
  static constexpr double kLeastDeviation = 1e-6, kTolerance = 1e-5;
  static constexpr std::int64_t kIterations = 500;

  Required required() const override { return masked(); }

  MaskClasses classes_in(const std::shared_ptr<const Source>& source) const {
    const MaskClasses out = mask_classes(source, class_names_for(settings_.classes, *source, "segmentation_probe"),
                                         "segmentation_probe.classes", settings_.ignore, source->class_names());
    for (const std::string& name : settings_.ignore)
      if (!contains(out.names, name))
        user_error("segmentation_probe.ignore: no class is called ", name, "; there are ", join_names(out.names));
    return out;
  }

  LabeledFeatures train_patches(const Pass& pass, const MaskClasses& test) const {
    const MaskClasses classes = classes_in(pass.source);
    const std::int64_t count = test.count();
    if (classes.count() != count)
      throw TaskMisfit(concat("segmentation_probe: the training data have ", classes.count(), " classes, the test data ", count));
    if (match_names(classes.names, test.names).by_name)
      throw TaskMisfit(concat("segmentation_probe: some classes have other numbers in the training data, ", classes.source->describe(),
                              ", than in the test data, ", test.source->describe()));
    std::vector<at::Tensor> features, labels;
    TaskResult uncounted;
    pass.run(uncounted, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& batch) {
      const std::vector<at::Tensor> tokens = patches_of(batch, "segmentation_probe").unbind(), targets = make_masks(samples, classes);
      for (std::size_t i = 0; i < samples.size(); ++i) {
        const at::Tensor own = classes_of_patches(targets[i], pass.embedder.grid(), count);
        const at::Tensor chosen = chosen_patches(own, samples[i].index);
        features.push_back(tokens[i].index_select(0, chosen));
        labels.push_back(own.index_select(0, chosen));
      }
    });
    LabeledFeatures out{at::cat(features), at::cat(labels)};
    if (out.labels.numel() == 0) user_error("segmentation_probe: no patch of the training data has a class");
    return out;
  }

  /// Chooses at most patches_per_image of the patches that have a class. The choice is the same in each run.
  at::Tensor chosen_patches(const at::Tensor& labels, std::int64_t image) const {
    std::vector<std::int64_t> places = to_vector<std::int64_t>(labels.ne(kIgnoredClass).nonzero().squeeze(1));
    if (std::ssize(places) > settings_.patches_per_image) {
      Random(0, Purpose::shuffle, {static_cast<std::uint64_t>(image)}).shuffle(places);
      places.resize(static_cast<std::size_t>(settings_.patches_per_image));
      std::ranges::sort(places);
    }
    return at::tensor(places, at::kLong);
  }
};

}  // namespace

void add_segmentation_probe(TaskRegistry& list) {
  add_task<SegmentationProbeTask>(list, "segmentation_probe", "segmentation by a linear classifier on frozen patch features (DINOv2)");
}

}  // namespace tessera
