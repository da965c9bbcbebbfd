#pragma once

#include <string>

#include <tessera/evaluation/conditioned_embedder.h>
#include <tessera/evaluation/task.h>
#include <tessera/evaluation/tasks/task_settings.h>

/// Tasks that may compare through a text-conditioned pool.
namespace tessera {

/// Throws TaskMisfit if a setting ("retrieval.similarity") is at a `value` other than `usual`, and there is no pool for it or
/// only some slots of the embeddings are kept.
void check_conditioned(const EvaluationContext& context, const std::string& setting, const std::string& value,
                       const std::string& usual);

/// The model through the context's pool, where the setting is at that value. Throws as check_conditioned().
/// `candidates`: of ConditionedEmbedder.
ConditionedEmbedder conditioned(const Embedder& model, const EvaluationContext& context, const std::string& setting,
                                const std::string& value, const std::string& usual,
                                std::optional<std::int64_t> candidates = std::nullopt);

/// The same as the settings of a task say; `similarity` is not global.
ConditionedEmbedder conditioned(const Embedder& model, const EvaluationContext& context, const std::string& task,
                                const SimilaritySettings& settings);

/// What results say of their data: " (conditioned)", " (conditioned, 128 candidates)"; nothing of global.
std::string described(const SimilaritySettings& settings);

}  // namespace tessera
