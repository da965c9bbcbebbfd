#include <ATen/ATen.h>

#include "src/evaluation/metrics/conditioned_similarity.h"
#include "src/models/text_conditioned_pool.h"
#include "tests/reference/all_runners.h"

namespace tessera::probe {
namespace {

struct PoolCase : TextConditionedPoolSettings {
  std::int64_t embed_dim = 0;
};

template <class Visitor>
void fields(Visitor& v, PoolCase& s) {
  v("embed_dim", s.embed_dim, "D", config::at_least(1));
  fields(v, static_cast<TextConditionedPoolSettings&>(s));
}

struct ScoresCase : PoolCase {
  std::string mode = "conditioned";
  std::int64_t topk = 0;
};

template <class Visitor>
void fields(Visitor& v, ScoresCase& s) {
  fields(v, static_cast<PoolCase&>(s));
  v("mode", s.mode, "what is compared", config::one_of({"conditioned", "topk", "global"}));
  v("topk", s.topk, "candidates of an image", config::at_least(1));
}

Outputs run_text_conditioned_pool(Run& run) {
  const auto settings = config::read<PoolCase>(run.settings(), run.path());
  TextConditionedPool pool(settings, settings.embed_dim);
  run.bind_all(pool);
  const TextConditionedPool::Pooled out = pool.forward(run.input("image_tokens"), run.input("queries"));
  return {{"pooled", out.pooled}, {"attention", out.attention}};
}

Outputs run_flair_scores(Run& run) {
  const auto settings = config::read<ScoresCase>(run.settings(), run.path());
  TextConditionedPool pool(settings, settings.embed_dim);
  run.bind_all(pool, "pool.");
  const at::Tensor &tokens = run.input("image_tokens"), &texts = run.input("text_global");
  const metrics::ConditionedSimilarity similarity(pool, texts);
  if (settings.mode == "global") return {{"similarity", similarity.global(run.input("image_global"))}};
  if (settings.mode == "topk")
    return {{"similarity", similarity.among_nearest(run.input("image_global"), tokens, settings.topk)}};
  return {{"similarity", similarity.exact(tokens)}};
}

Outputs run_flair_patch_scores(Run& run) {
  const auto settings = config::read<PoolCase>(run.settings(), run.path());
  TextConditionedPool pool(settings, settings.embed_dim);
  run.bind_all(pool, "pool.");
  const metrics::ConditionedSimilarity similarity(pool, run.input("text_global"));
  return {{"similarity", similarity.of_patches(run.input("image_tokens"))}};
}

}  // namespace

void add_flair_runners(Runners& runners) {
  runners.add("text_conditioned_pool", run_text_conditioned_pool);
  runners.add("flair_scores", run_flair_scores);
  runners.add("flair_patch_scores", run_flair_patch_scores);
}

}  // namespace tessera::probe
