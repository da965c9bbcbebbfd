#include "src/evaluation/metrics/captions.h"
#include "src/evaluation/tasks/data_task.h"
#include "src/evaluation/tasks/retrieval_sheets.h"

namespace tessera {
namespace {

struct KPrecisionSettings {
  TaskData data;
  TextList lexicon;
  std::string prompt_prefix;
  bool clip_counts = false;
};

template <class Visitor>
void fields(Visitor& v, KPrecisionSettings& s) {
  data_fields(v, s.data);
  equal_images_field(v, s.data);
  v("lexicon", s.lexicon,
    "nouns and adjectives in lower case (in a file, one per line), the only words that k_precision_na counts; empty: k_precision_na "
    "is not measured");
  v("prompt_prefix", s.prompt_prefix, "text put before every caption, such as \"a photo of \"; its words do not count");
  v("clip_counts", s.clip_counts,
    "count a word at most as often as it occurs in the image's own captions; false: count every occurrence (SPARC)");
}

/// Measures how far captions retrieved for an image agree with the image's own captions (Bica et al. 2024, section 4.3).
class KPrecisionTask final : public DataTask<KPrecisionSettings> {
 public:
  std::vector<std::string> metric_names(const Embedder& /*embedder*/) const override {
    std::vector<std::string> out = {"k_precision"};
    if (!settings_.lexicon.items.empty()) out.push_back("k_precision_na");
    return out;
  }

  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    Pass pass = pass_over_data(embedder, context);
    pass.counts_equal_images = true;
    pass.reads_pixels = false;
    TaskResult result;
    Captions captions;
    std::vector<std::pair<std::string, std::size_t>> shown;  // key and row of the images whose retrieved captions are reported
    ExampleChooser examples(pass.total());
    const TowerFeatures images = pass.run_and_keep(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures&) {
      for (const EvaluationSample& sample : samples) {
        if (examples.choose(sample.index)) shown.emplace_back(sample.sample.key, captions.by_image.size());
        captions.add(sample.sample.captions);
      }
    });

    const std::vector<std::string>& all = captions.texts;
    result.texts = std::ssize(all);
    const TowerFeatures texts = embed_compactly(embedder, prefixed(all, settings_.prompt_prefix));
    const auto top1 = metrics::best_texts(similarity_tile(embedder, images, texts), std::ssize(captions.by_image), result.texts);
    const auto scores = metrics::k_precision(top1, all, captions.owner, lexicon(), settings_.clip_counts);
    add("k_precision", scores.k_precision, scores.per_image, result);
    if (lexicon()) add("k_precision_na", scores.k_precision_na, scores.per_image_na, result);
    for (const auto& [key, row] : shown) {
      const std::string& chosen = all[static_cast<std::size_t>(scores.top1[row])];
      result.readings.push_back({key, concat(chosen, " (", format_metric(result.rule_of("k_precision"), scores.per_image[row]), ")")});
    }
    return result;
  }

 private:
  Required required() const override { return captioned(); }

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
};

}  // namespace

void add_k_precision(TaskRegistry& list) {
  add_task<KPrecisionTask>(
      list, "k_precision", "agreement of captions retrieved for images with the images' own captions (SPARC)",
      "k_precision: the share of the words of an image's nearest caption that occur in the image's own captions, averaged over "
      "images. k_precision_na: the same for nouns and adjectives only, over captions that have some.");
}

}  // namespace tessera
