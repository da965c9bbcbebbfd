#include "src/evaluation/tasks/conditioned.h"

#include <tessera/base/text.h>

namespace tessera {

void check_conditioned(const EvaluationContext& context, const std::string& setting, const std::string& value,
                       const std::string& usual) {
  if (value == usual) return;
  if (context.pool == nullptr)
    throw TaskMisfit(concat(setting, " is ", value,
                            ", but there is no text-conditioned pool: objectives like flair have one, "
                            "and checkpoints of their runs hold it (objective.pool.*); take such a model, or ",
                            setting, ": ", usual));
  if (!context.slots.empty())
    throw TaskMisfit(concat(setting, " is ", value,
                            ", and the text-conditioned pool takes whole embeddings: leave out --slots, "
                            "or take ",
                            setting, ": ", usual));
}

ConditionedEmbedder conditioned(const Embedder& model, const EvaluationContext& context, const std::string& setting,
                                const std::string& value, const std::string& usual,
                                std::optional<std::int64_t> candidates) {
  check_conditioned(context, setting, value, usual);
  return {model, context.pool, candidates, setting};
}

ConditionedEmbedder conditioned(const Embedder& model, const EvaluationContext& context, const std::string& task,
                                const SimilaritySettings& settings) {
  const auto candidates = settings.similarity == "topk" ? std::optional(settings.candidates) : std::nullopt;
  return conditioned(model, context, task + ".similarity", settings.similarity, "global", candidates);
}

std::string similarity_sentence(const SimilaritySettings& settings) {
  if (settings.similarity == "conditioned")
    return " A text is compared with the image embedding that the objective's pool makes for it (similarity: conditioned).";
  if (settings.similarity == "topk")
    return concat(" The ", settings.candidates, " texts nearest to an image's embedding are compared with the embeddings that they pool from "
                  "it, by the objective's pool; all others rank behind them, with their cosine minus 4 (similarity: topk).");
  return "";
}

std::string described(const SimilaritySettings& settings) {
  if (settings.similarity == "global") return "";
  if (settings.similarity == "conditioned") return " (conditioned)";
  return concat(" (conditioned, ", settings.candidates, settings.candidates == 1 ? " candidate)" : " candidates)");
}

}  // namespace tessera
