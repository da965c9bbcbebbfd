#pragma once

#include <string>

#include "src/evaluation/conditioned_embedder.h"
#include "src/evaluation/tasks/task_settings.h"
#include <tessera/evaluation/task.h>

namespace tessera {

/// A `value` other than `usual` requires a context that has a text-conditioned pool and keeps all slots of the embeddings. Throws
/// TaskMisfit if the context does not meet this requirement. `setting` is the setting's name for the message ("retrieval.similarity").
void check_conditioned(const EvaluationContext& context, const std::string& setting, const std::string& value,
                       const std::string& usual);

/// Returns an embedder that compares images and texts through the context's text-conditioned pool. See ConditionedEmbedder for
/// `candidates`. Throws like check_conditioned().
ConditionedEmbedder conditioned(const Embedder& model, const EvaluationContext& context, const std::string& setting,
                                const std::string& value, const std::string& usual,
                                std::optional<std::int64_t> candidates = std::nullopt);

/// Returns the embedder for a task whose `similarity` is not global.
ConditionedEmbedder conditioned(const Embedder& model, const EvaluationContext& context, const std::string& task,
                                const SimilaritySettings& settings);

/// Returns the sentence that the setting adds to the explanation of a task's numbers; empty for `global`.
std::string similarity_sentence(const SimilaritySettings& settings);

/// Returns what is appended to the description of the data in results: " (conditioned)", or " (conditioned, 128 candidates)",
/// or an empty string if the similarity is global.
std::string described(const SimilaritySettings& settings);

}  // namespace tessera
