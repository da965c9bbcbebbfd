#pragma once

#include <string>

#include <tessera/evaluation/conditioned_embedder.h>
#include <tessera/evaluation/task.h>
#include <tessera/evaluation/tasks/task_settings.h>

namespace tessera {

/// Throws TaskMisfit if a setting ("retrieval.similarity") has a `value` other than `usual`, but the context has no
/// text-conditioned pool or keeps only some slots of the embeddings.
void check_conditioned(const EvaluationContext& context, const std::string& setting, const std::string& value,
                       const std::string& usual);

/// Returns an embedder that compares through the context's pool. Throws like check_conditioned(). `candidates` is that of
/// ConditionedEmbedder.
ConditionedEmbedder conditioned(const Embedder& model, const EvaluationContext& context, const std::string& setting,
                                const std::string& value, const std::string& usual,
                                std::optional<std::int64_t> candidates = std::nullopt);

/// The same according to the settings of a task, whose `similarity` is not global.
ConditionedEmbedder conditioned(const Embedder& model, const EvaluationContext& context, const std::string& task,
                                const SimilaritySettings& settings);

/// Returns the suffix for the results' data: " (conditioned)", " (conditioned, 128 candidates)", or nothing for global.
std::string described(const SimilaritySettings& settings);

}  // namespace tessera
