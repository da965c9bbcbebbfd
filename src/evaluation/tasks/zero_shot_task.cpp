#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/encode.h"
#include "src/evaluation/tasks/tasks.h"
#include <tessera/base/text.h>
#include <tessera/evaluation/metrics/zero_shot.h>

namespace tessera {
namespace {

constexpr std::int64_t kBars = 5;
constexpr std::size_t kGreatestConfusion = 40;

class ZeroShotTask final : public EvaluationTask {
 public:
  explicit ZeroShotTask(ZeroShotSettings settings) : settings_(std::move(settings)) {}

  void check(const EvaluationContext& context) const override {
    const auto source = open_source(settings_.data.source, context.source, "zero_shot.source");
    class_names_for(settings_.classes, *source, "zero_shot");
  }

  TaskResult run(DualEncoder& model, const Tokenizer& tokenizer, const EvaluationContext& context) const override {
    const auto source = open_source(settings_.data.source, context.source, "zero_shot.source");
    const std::vector<std::string> names = class_names_for(settings_.classes, *source, "zero_shot");
    TaskResult result;
    LabeledFeatures images = encode_labeled(model, source, context, settings_.data.max_samples, result);
    const auto greatest = images.labels.max().item<std::int64_t>();
    if (greatest >= static_cast<std::int64_t>(names.size())) {
      user_error("zero_shot: ", source->describe(), " has a sample of class ", greatest, ", but there are only ",
                 names.size(), " class names (0 to ", names.size() - 1, ")");
    }

    // The background of masks is no class of pictures: it gets no prompt.
    const bool named_by_source = settings_.classes.items.empty();
    const std::int64_t background = named_by_source ? source->background_class() : -1;
    std::vector<std::string> candidates;
    std::vector<std::int64_t> place(names.size(), -1);
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (static_cast<std::int64_t>(i) == background) continue;
      place[i] = static_cast<std::int64_t>(candidates.size());
      candidates.push_back(names[i]);
    }
    const at::Tensor labels = at::tensor(place, at::kLong).index_select(0, images.labels);
    const auto classes = static_cast<std::int64_t>(candidates.size());
    const ClassPrompts prompts = encode_prompts(model, tokenizer, candidates, settings_.templates, context);
    const auto scores = metrics::zero_shot_classification(images.features, labels, prompts.features, prompts.owner,
                                                          classes, settings_.topk);
    for (std::size_t i = 0; i < settings_.topk.size(); ++i) {
      result.metrics.emplace_back(concat("top", settings_.topk[i]), scores.topk[i]);
    }
    result.metrics.emplace_back("mean_per_class", scores.mean_per_class);
    if (context.pictures) {
      result.pictures.class_names = candidates;
      add_pictures(model, *source, images, labels, scores, context, result.pictures);
    }
    return result;
  }

 private:
  static void add_pictures(const DualEncoder& model, const Source& source, const LabeledFeatures& images,
                           const at::Tensor& labels, const metrics::ZeroShotScores& scores,
                           const EvaluationContext& context, TaskPictures& pictures) {
    const std::size_t classes = pictures.class_names.size();
    for (const std::int64_t n : spread(images.features.size(0), kExamplePictures)) {
      const at::Tensor cosines = metrics::unit_rows(images.features[n]).matmul(scores.class_embeddings.t());
      const at::Tensor shares = (cosines * context.logit_scale).softmax(0);
      const at::Tensor best = metrics::best_first(cosines, kBars);
      ClassificationExample example;
      example.image = model_view(source, images.indices[static_cast<std::size_t>(n)], model.settings().preprocessing);
      example.label = labels[n].item<std::int64_t>();
      for (std::int64_t i = 0; i < best.size(0); ++i) {
        const auto name = best[i].item<std::int64_t>();
        example.best.emplace_back(name, shares[name].item<double>());
      }
      pictures.classification.push_back(std::move(example));
    }
    for (std::size_t c = 0; c < classes; ++c) {
      const double accuracy = scores.per_class[static_cast<std::int64_t>(c)].item<double>();
      if (accuracy >= 0) pictures.class_values.emplace_back(pictures.class_names[c], accuracy);
    }
    if (classes > kGreatestConfusion) return;
    pictures.confusion.assign(classes, std::vector<std::int64_t>(classes, 0));
    const at::Tensor known = labels.contiguous(), guess = scores.prediction.to(at::kCPU).contiguous();
    for (std::int64_t n = 0; n < known.size(0); ++n) {
      const auto row = known.const_data_ptr<std::int64_t>()[n];
      if (row >= 0)
        ++pictures.confusion[static_cast<std::size_t>(row)]
                            [static_cast<std::size_t>(guess.const_data_ptr<std::int64_t>()[n])];
    }
  }

  ZeroShotSettings settings_;
};

}  // namespace

std::shared_ptr<EvaluationTask> make_zero_shot_task(const ZeroShotSettings& settings) {
  return std::make_shared<ZeroShotTask>(settings);
}

}  // namespace tessera
