#include <ATen/ATen.h>

#include "src/data/loading/evaluation_reader.h"
#include "src/evaluation/metrics/captions.h"
#include "src/evaluation/tasks/check_samples.h"
#include "src/evaluation/tasks/examples.h"
#include "src/evaluation/tasks/pass.h"
#include "src/evaluation/tasks/retrieval_sheets.h"
#include "src/evaluation/tasks/tasks.h"
#include <tessera/base/text.h>

namespace tessera {
namespace {

class KPrecisionTask final : public EvaluationTask {
 public:
  explicit KPrecisionTask(KPrecisionSettings settings) : settings_(std::move(settings)) {}

  std::string rule() const override {
    return "k_precision: the share of the words of an image's nearest caption that occur in the image's own captions, averaged over "
           "images. k_precision_na: the same for nouns and adjectives only, over captions that have some.";
  }

  void check(const EvaluationContext& context) const override {
    const auto source = open_source(settings_.data.source, context.source, "k_precision.source");
    check_samples(*source, "source", settings_.data.max_samples, captioned());
  }

  std::vector<std::string> metric_names(const Embedder& /*embedder*/) const override {
    std::vector<std::string> out = {"k_precision"};
    if (!settings_.lexicon.items.empty()) out.push_back("k_precision_na");
    return out;
  }

  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    const Pass pass{.embedder = embedder,
                    .context = context,
                    .source = open_source(settings_.data, context.source, "k_precision.source"),
                    .max_samples = settings_.data.max_samples,
                    .required = captioned(),
                    .counts_equal_images = true};
    TaskResult result;
    std::vector<std::string> captions, shown;  // shown: keys of the images whose retrieved captions are reported
    std::vector<std::int64_t> owner, shown_rows;
    std::vector<TowerFeatures> batches;
    std::int64_t count = 0;
    ExampleChooser examples(pass.total());
    pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
      for (const EvaluationSample& sample : samples) {
        captions.insert(captions.end(), sample.sample.captions.begin(), sample.sample.captions.end());
        owner.insert(owner.end(), sample.sample.captions.size(), count);
        if (examples.choose(sample.index)) {
          shown.push_back(sample.sample.key);
          shown_rows.push_back(count);
        }
        ++count;
      }
      batches.push_back(embedder.compact(features));
    });

    result.texts = std::ssize(captions);
    const TowerFeatures images = joined(batches);
    const TowerFeatures texts = embed_compactly(embedder, prefixed(captions, settings_.prompt_prefix));
    const auto similarity = [&](metrics::RowRange some_images, metrics::RowRange some_texts) {
      return embedder.similarity(slice(images, some_images), slice(texts, some_texts));
    };
    const auto top1 = metrics::best_texts(similarity, count, std::ssize(captions));
    const auto scores = metrics::k_precision(top1, captions, owner, lexicon(), settings_.clip_counts);
    add("k_precision", scores.k_precision, scores.per_image, result);
    if (lexicon()) add("k_precision_na", scores.k_precision_na, scores.per_image_na, result);
    for (std::size_t i = 0; i < shown.size(); ++i) {
      const auto row = static_cast<std::size_t>(shown_rows[i]);
      const std::string& chosen = captions[static_cast<std::size_t>(scores.top1[row])];
      result.readings.push_back(
          {shown[i], concat(chosen, " (", format_metric(result.rule_of("k_precision"), scores.per_image[row]), ")")});
    }
    return result;
  }

 private:
  std::optional<std::vector<std::string>> lexicon() const {
    if (settings_.lexicon.items.empty()) return std::nullopt;
    return settings_.lexicon.items;
  }

  /// Adds a metric and its values per image. If the best caption of an image has no word that counts, the image has the
  /// value -1 and is left out.
  static void add(const std::string& name, double value, const std::vector<double>& per_image, TaskResult& result) {
    result.add_share(name, value);
    result.outcomes.push_back(report::mean_outcomes(name, per_image));
  }

  KPrecisionSettings settings_;
};

}  // namespace

std::shared_ptr<EvaluationTask> make_k_precision_task(const KPrecisionSettings& settings) {
  return std::make_shared<KPrecisionTask>(settings);
}

}  // namespace tessera
