#include <ATen/ATen.h>

#include "src/data/formats/captions.h"
#include "src/data/loading/evaluation_reader.h"
#include "src/evaluation/multi_hot_embedder.h"
#include "src/evaluation/tasks/check_samples.h"
#include "src/evaluation/tasks/conditioned.h"
#include "src/evaluation/tasks/conditioned_retrieval.h"
#include "src/evaluation/tasks/outcomes.h"
#include "src/evaluation/tasks/pass.h"
#include "src/evaluation/tasks/retrieval_sheets.h"
#include "src/evaluation/tasks/sparsity_metrics.h"
#include "src/evaluation/tasks/tasks.h"
#include <tessera/base/text.h>

namespace tessera {
namespace {

class RetrievalTask final : public EvaluationTask {
 public:
  explicit RetrievalTask(RetrievalSettings settings) : settings_(std::move(settings)) {}

  std::string rule() const override {
    return std::string("recall@k: the share of captions whose image is among the k nearest of all images (text_to_image), and of images with one of "
           "their captions among the k nearest of all captions (image_to_text).") +
           similarity_sentence(settings_.compared);
  }

  void check(const EvaluationContext& context) const override {
    check_conditioned(context, "retrieval.similarity", settings_.compared.similarity, "global");
    const auto source = open_source(settings_.data.source, context.source, "retrieval.source");
    check_samples(*source, "source", settings_.data.max_samples, captioned());
  }

  std::vector<std::string> metric_names(const Embedder& embedder) const override {
    // returns no names, because add_sparsity() may add further metrics, whose names are not known here
    if (embedder.token_space() > 0 || settings_.text_encoder_free) return {};
    std::vector<std::string> out;
    for (const char* direction : {"image_to_text", "text_to_image"})
      for (const std::int64_t k : settings_.topk) out.push_back(concat(direction, "_recall@", k));
    return out;
  }

  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    if (settings_.compared.similarity != "global") {
      TaskResult result = measure_conditioned(conditioned(embedder, context, "retrieval", settings_.compared), context);
      result.data += described(settings_.compared);
      return result;
    }
    if (!settings_.text_encoder_free) return measure(embedder, context);
    TaskResult result = measure(MultiHotEmbedder(embedder, "retrieval.text_encoder_free"), context);
    result.data += " (no text encoder)";
    return result;
  }

 private:
  TaskResult measure(const Embedder& embedder, const EvaluationContext& context) const {
    const Pass pass = pass_of(embedder, context);
    TaskResult result;
    Captions captions;
    std::vector<TowerFeatures> batches;
    RetrievalSheets sheets(embedder, settings_.prompt_prefix, pass.total());
    pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
      for (const EvaluationSample& sample : samples) add(sample.sample, captions);
      batches.push_back(embedder.compact(features));
      if (context.images) sheets.add(samples, features, captions);
    });

    if (captions.texts.empty()) throw UserError(no_sentence(*pass.source));
    const TowerFeatures images = joined(batches);
    const TowerFeatures texts = embed_compactly(embedder, prefixed(captions.texts, settings_.prompt_prefix));
    const at::Tensor owner = at::tensor(captions.owner, at::kLong);
    const metrics::RetrievalScores scores = ranked(embedder, images, texts, owner);
    add_recalls(scores, owner, result);
    if (embedder.token_space() > 0) {
      metrics::SparsityMeter image_tokens, text_tokens;
      image_tokens.add(images.global);
      text_tokens.add(texts.global);
      add_sparsity(result, image_tokens, text_tokens);
    }
    const auto similarity = [&](std::int64_t row) {
      return embedder.similarity(slice(images, {row, row + 1}), texts).squeeze(0);
    };
    if (context.images) add_retrieval_cards(sheets.finished(similarity, captions, scores), result);
    return result;
  }

  TaskResult measure_conditioned(const Embedder& embedder, const EvaluationContext& context) const {
    const Pass pass = pass_of(embedder, context);
    // Float32 is precise enough for conditioned scores. But with topk, a text that is not a candidate gets its cosine minus 4 as its
    // score, and float32 would lose the order of such scores.
    const at::ScalarType dtype = settings_.compared.similarity == "topk" ? at::kDouble : at::kFloat;
    ConditionedRetrieval compared(
        pass, [this](const Sample& sample) { return own_captions(sample); }, settings_.prompt_prefix, dtype);
    TaskResult result;
    RetrievalSheets sheets(embedder, settings_.prompt_prefix, pass.total());
    pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
      const auto similarity = compared.add(samples, features);
      if (context.images) sheets.add(samples, similarity, compared.captions());
    });
    const at::Tensor all = compared.similarity();
    const at::Tensor owner = at::tensor(compared.captions().owner, at::kLong);
    const auto tile = [&](metrics::RowRange images, metrics::RowRange texts) {
      return all.slice(0, images.begin, images.end).slice(1, texts.begin, texts.end);
    };
    const metrics::RetrievalScores scores = metrics::retrieval_recall(tile, all.size(0), owner, settings_.topk);
    add_recalls(scores, owner, result);
    if (context.images)
      add_retrieval_cards(sheets.finished([&](std::int64_t row) { return all[row]; }, compared.captions(), scores), result);
    return result;
  }

  Pass pass_of(const Embedder& embedder, const EvaluationContext& context) const {
    return {.embedder = embedder,
            .context = context,
            .source = open_source(settings_.data, context.source, "retrieval.source"),
            .max_samples = settings_.data.max_samples,
            .required = captioned(),
            .counts_equal_images = true,
            .reads_pixels = context.images};
  }

  // Adds the recalls. The bootstrap draws the captions of one image together, because they are not independent samples.
  void add_recalls(const metrics::RetrievalScores& scores, const at::Tensor& owner, TaskResult& result) const {
    result.texts = owner.size(0);
    for (std::size_t i = 0; i < settings_.topk.size(); ++i) {
      const std::string name = concat("image_to_text_recall@", settings_.topk[i]);
      result.add_share(name, scores.image_to_text[i]);
      result.outcomes.push_back(hits_within(name, scores.image_to_text_rank, settings_.topk[i]));
    }
    for (std::size_t i = 0; i < settings_.topk.size(); ++i) {
      const std::string name = concat("text_to_image_recall@", settings_.topk[i]);
      result.add_share(name, scores.text_to_image[i]);
      result.chance[name] = std::min(
          1.0, static_cast<double>(settings_.topk[i]) / static_cast<double>(scores.image_to_text_rank.size(0)));
      result.outcomes.push_back(hits_within(name, scores.text_to_image_rank, settings_.topk[i], owner));
    }
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

  std::vector<std::string> own_captions(const Sample& sample) const {
    const auto wanted = static_cast<std::size_t>(settings_.captions_per_image);
    std::vector<std::string> own = sample.captions;
    if (wanted > 0 && own.size() > wanted) own.resize(wanted);
    if (!settings_.sentences) return own;
    std::vector<std::string> sentences;
    for (const std::string& caption : own)
      for (std::string& sentence : caption_sentences(caption)) sentences.push_back(std::move(sentence));
    return sentences;
  }

  void add(const Sample& sample, Captions& captions) const {
    const std::int64_t image = std::ssize(captions.by_image);
    std::vector<std::string> own = own_captions(sample);
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
