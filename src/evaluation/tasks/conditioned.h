#pragma once

#include <string>

#include <tessera/evaluation/conditioned_embedder.h>
#include <tessera/evaluation/task.h>
#include <tessera/evaluation/tasks/task_settings.h>

namespace tessera {

/// Throws TaskMisfit if the value of a setting ("retrieval.similarity") is not `usual` although the context has no text-conditioned
/// pool or keeps only some slots of the embeddings.
void check_conditioned(const EvaluationContext& context, const std::string& setting, const std::string& value,
                       const std::string& usual);

/// Returns an embedder that compares through the context's pool. Throws like check_conditioned(). ConditionedEmbedder documents
/// `candidates`.
ConditionedEmbedder conditioned(const Embedder& model, const EvaluationContext& context, const std::string& setting,
                                const std::string& value, const std::string& usual,
                                std::optional<std::int64_t> candidates = std::nullopt);

/// Returns the embedder for the settings of a task, if its `similarity` is not global.
ConditionedEmbedder conditioned(const Embedder& model, const EvaluationContext& context, const std::string& task,
                                const SimilaritySettings& settings);

/// Returns a suffix for the description of the data in results: " (conditioned)", " (conditioned, 128 candidates)", or an empty
/// text for global.
std::string described(const SimilaritySettings& settings);

}  // namespace tessera
