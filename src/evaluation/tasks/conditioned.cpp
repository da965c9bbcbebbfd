#include "src/evaluation/embedder_views.h"
#include "src/evaluation/tasks/conditioned.h"
#include <tessera/base/text.h>

namespace tessera {

std::optional<config::Problem> validate(const SimilaritySettings& settings) {
  if (!settings.text_encoder_free || settings.similarity == "global") return std::nullopt;
  return config::Problem{"similarity", concat("is ", settings.similarity, ", which needs the text tower, but text_encoder_free leaves it "
                                              "out: set one of the two to its default")};
}

void check_conditioned(const EvaluationContext& context, const std::string& setting, const std::string& value, const std::string& usual) {
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

TaskResult measure_by_similarity(const std::string& task, const SimilaritySettings& settings, const Embedder& model,
                                 const EvaluationContext& context, const std::function<TaskResult(const Embedder&)>& measure) {
  const std::string& similarity = settings.similarity;
  if (similarity == "global" && !settings.text_encoder_free) return measure(model);
  if (settings.text_encoder_free) {
    TaskResult result = measure(MultiHotEmbedder(model, task + ".text_encoder_free"));
    result.data += " (no text encoder)";
    return result;
  }
  const auto candidates = similarity == "topk" ? std::optional(settings.candidates) : std::nullopt;
  TaskResult result = measure(conditioned(model, context, task + ".similarity", similarity, "global", candidates));
  result.data += candidates ? concat(" (conditioned, ", *candidates, *candidates == 1 ? " candidate)" : " candidates)") : " (conditioned)";
  return result;
}

std::string similarity_sentence(const SimilaritySettings& settings) {
  if (settings.similarity == "conditioned")
    return " A text is compared with the image embedding that the objective's pool makes for it (similarity: conditioned).";
  if (settings.similarity == "topk")
    return concat(" The ", settings.candidates, " texts nearest to an image's embedding are compared with the embeddings that they pool "
                  "from it, by the objective's pool; all others rank behind them, with their cosine minus 4 (similarity: topk).");
  return "";
}

}  // namespace tessera
