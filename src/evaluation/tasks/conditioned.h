#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "src/evaluation/embedder_views.h"
#include <tessera/config/fields.h>
#include <tessera/evaluation/task.h>

namespace tessera {

/// How images are compared with texts.
struct SimilaritySettings {
  bool text_encoder_free = false;
  std::string similarity = "global";
  std::int64_t candidates = 128;
};

/// Adds the setting `similarity` for tasks that compare each image with only a few texts.
template <class Visitor>
void similarity_field(Visitor& v, SimilaritySettings& s) {
  v("similarity", s.similarity,
    "how images are compared with texts; global: by the cosine of their embeddings; conditioned: by the cosine of a text's "
    "embedding with the image embedding that is pooled for this text, for models with a text-conditioned pool (FLAIR)",
    config::one_of({"global", "conditioned"}));
}

template <class Visitor>
void fields(Visitor& v, SimilaritySettings& s) {
  v("text_encoder_free", s.text_encoder_free,
    "do not use the text tower; a text's embedding is then 1 at each of its tokens and 0 elsewhere. For models whose embeddings are "
    "weights of vocabulary tokens (STAIR)");
  v("similarity", s.similarity,
    "how images are compared with texts; global: by the cosine of their embeddings; conditioned: by the cosine of a text's "
    "embedding with the image embedding that is pooled for this text, for models with a text-conditioned pool (FLAIR); topk: as "
    "conditioned, but only for an image's `candidates`, behind which the other texts follow by cosine",
    config::one_of({"global", "conditioned", "topk"}));
  v("candidates", s.candidates, "with similarity: topk, the number of texts that are an image's candidates, those with the greatest "
                                "cosine",
    config::at_least(1));
}
std::optional<config::Problem> validate(const SimilaritySettings& settings);

/// A `value` other than `usual` requires a context that has a text-conditioned pool and keeps all slots of the embeddings. Throws
/// TaskMisfit if the context does not meet this requirement. `setting` is the setting's name for the message ("retrieval.similarity").
void check_conditioned(const EvaluationContext& context, const std::string& setting, const std::string& value,
                       const std::string& usual = "global");

/// Returns an embedder that compares images and texts through the context's text-conditioned pool. See ConditionedEmbedder for
/// `candidates`. Throws like check_conditioned().
ConditionedEmbedder conditioned(const Embedder& model, const EvaluationContext& context, const std::string& setting,
                                const std::string& value, const std::string& usual = "global",
                                std::optional<std::int64_t> candidates = std::nullopt);

/// Calls `measure` with an embedder that compares images and texts as the settings of the task say, and adds the way of comparing to the
/// description of the result's data: " (conditioned)", " (conditioned, 128 candidates)" or " (no text encoder)". Throws like
/// check_conditioned(), and UserError if the model cannot do without its text tower.
TaskResult measure_by_similarity(const std::string& task, const SimilaritySettings& settings, const Embedder& model,
                                 const EvaluationContext& context, const std::function<TaskResult(const Embedder&)>& measure);

/// Returns the sentence that the setting adds to the explanation of a task's numbers; empty for `global`.
std::string similarity_sentence(const SimilaritySettings& settings);

}  // namespace tessera
