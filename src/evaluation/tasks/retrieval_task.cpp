#include <ATen/ATen.h>

#include "src/evaluation/tasks/check_samples.h"
#include "src/evaluation/tasks/outcomes.h"
#include "src/evaluation/tasks/pass.h"
#include "src/evaluation/tasks/retrieval_sheets.h"
#include "src/evaluation/tasks/sparsity_metrics.h"
#include "src/evaluation/tasks/tasks.h"
#include <tessera/base/text.h>
#include <tessera/evaluation/multi_hot_embedder.h>

namespace tessera {
namespace {

class RetrievalTask final : public EvaluationTask {
 public:
  explicit RetrievalTask(RetrievalSettings settings) : settings_(std::move(settings)) {}

  void check(const EvaluationContext& context) const override {
    const auto source = open_source(settings_.data.source, context.source, "retrieval.source");
    check_samples(*source, "source", settings_.data.max_samples, captioned());
  }

  std::vector<std::string> metric_names(const Embedder& embedder) const override {
    if (embedder.token_space() > 0 || settings_.text_encoder_free) return {};  // further ones tell of its tokens
    std::vector<std::string> out;
    for (const char* direction : {"image_to_text", "text_to_image"})
      for (const std::int64_t k : settings_.topk) out.push_back(concat(direction, "_recall@", k));
    return out;
  }

  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    if (!settings_.text_encoder_free) return measure(embedder, context);
    TaskResult result = measure(MultiHotEmbedder(embedder, "retrieval.text_encoder_free"), context);
    result.data += " (no text encoder)";
    return result;
  }

 private:
  TaskResult measure(const Embedder& embedder, const EvaluationContext& context) const {
    const auto source = open_source(settings_.data.source, context.source, "retrieval.source");
    const Pass pass{.embedder = embedder,
                    .context = context,
                    .source = source,
                    .max_samples = settings_.data.max_samples,
                    .required = captioned(),
                    .reads_pixels = context.pictures};
    TaskResult result;
    Captions captions;
    std::vector<TowerFeatures> batches;
    RetrievalSheets sheets(embedder, settings_.prompt_prefix, pass.total());
    pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
      for (const EvaluationSample& sample : samples) add(sample.sample, captions);
      batches.push_back(embedder.compact(features));
      if (context.pictures) sheets.add(samples, features, captions);
    });

    const TowerFeatures images = joined(batches);
    const TowerFeatures texts = embed_compactly(embedder, prefixed(captions.texts, settings_.prompt_prefix));
    const metrics::RetrievalScores scores = ranked(embedder, images, texts, at::tensor(captions.owner, at::kLong));
    for (std::size_t i = 0; i < settings_.topk.size(); ++i) {
      const std::string name = concat("image_to_text_recall@", settings_.topk[i]);
      result.metrics.emplace_back(name, scores.image_to_text[i]);
      result.outcomes.push_back(hits_within(name, scores.image_to_text_rank, settings_.topk[i]));
    }
    // Captions of one picture are drawn together: they are no samples of their own.
    for (std::size_t i = 0; i < settings_.topk.size(); ++i) {
      const std::string name = concat("text_to_image_recall@", settings_.topk[i]);
      result.metrics.emplace_back(name, scores.text_to_image[i]);
      result.outcomes.push_back(
          hits_within(name, scores.text_to_image_rank, settings_.topk[i], at::tensor(captions.owner, at::kLong)));
    }
    if (embedder.token_space() > 0) {
      metrics::SparsityMeter image_tokens, text_tokens;
      image_tokens.add(images.global);
      text_tokens.add(texts.global);
      add_sparsity(result, image_tokens, text_tokens);
    }
    if (context.pictures) result.pictures.retrieval = sheets.finished(images, texts, captions, scores);
    return result;
  }

  metrics::RetrievalScores ranked(const Embedder& embedder, const TowerFeatures& images, const TowerFeatures& texts,
                                  const at::Tensor& owner) const {
    if (embedder.compares_by_cosine() && !images.global.is_sparse() && !texts.global.is_sparse())
      return metrics::retrieval_recall(images.global, texts.global, owner, settings_.topk);
    const auto similarity = [&](metrics::RowRange some_images, metrics::RowRange some_texts) {
      return embedder.similarity(slice(images, some_images), slice(texts, some_texts));
    };
    return metrics::retrieval_recall(similarity, images.global.size(0), owner, settings_.topk);
  }

  void add(const Sample& sample, Captions& captions) const {
    const std::int64_t image = std::ssize(captions.by_image);
    const auto wanted = static_cast<std::size_t>(settings_.captions_per_image);
    std::vector<std::string> own = sample.captions;
    if (wanted > 0 && own.size() > wanted) own.resize(wanted);
    for (const std::string& text : own) {
      captions.texts.push_back(text);
      captions.owner.push_back(image);
    }
    captions.by_image.push_back(std::move(own));
  }

  RetrievalSettings settings_;
};

}  // namespace

std::shared_ptr<EvaluationTask> make_retrieval_task(const RetrievalSettings& settings) {
  return std::make_shared<RetrievalTask>(settings);
}

}  // namespace tessera
