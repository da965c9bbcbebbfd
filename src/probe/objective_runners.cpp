#include <ATen/ATen.h>

#include "src/probe/all_runners.h"
#include <tessera/objectives/objective.h>
#include <tessera/ops/sparsify_group.h>

namespace tessera::probe {
namespace {

Features features_of(const Run& run) {
  Features features;
  TowerFeatures& image = features.images["image"];
  TowerFeatures& text = features.texts["caption"];
  image.global = run.optional_input("image_global");
  image.tokens = run.optional_input("image_tokens");
  text.global = run.optional_input("text_global");
  text.tokens = run.optional_input("text_tokens");
  text.mask = run.optional_input("text_mask");
  features.duplicates.image_group = run.optional_input("image_ids");
  features.duplicates.caption_group = run.optional_input("text_ids");
  return features;
}

// Objectives on the pairwise features of one image view and one caption.
Runner pairwise_objective(const std::string& name) {
  return [name](Run& run) -> Outputs {
    const Features features = features_of(run);
    ObjectiveContext widths;
    for (const at::Tensor& embedding : {features.text().global, features.text().tokens, features.image().global})
      if (embedding.defined()) widths.embed_dim = embedding.size(-1);
    const auto objective = objectives().make({name, run.settings()}, name, widths);
    run.bind_all(*objective);
    StepContext context;
    context.inspect = true;
    Losses losses = objective->forward(features, context);
    Outputs outputs{{"loss", losses.total}};
    for (const auto& [term, value] : losses.terms) outputs[term] = value;
    for (const auto& [detail, value] : losses.details) outputs[detail] = value;
    return outputs;
  };
}

Outputs run_sparsify_group(Run& run) {
  const auto settings = config::read<SparsifySettings>(run.settings(), "sparsify_group");
  const at::Tensor &text = run.input("text_tokens"), &image = run.input("image_tokens"), &mask = run.input("text_mask");
  return {{"grouped", sparsify_group(text, image, mask, settings)},
          {"weights", sparsify_weights(text, image, mask, settings)}};
}

}  // namespace

void add_objective_runners(Runners& runners) {
  runners.add("sparsify_group", run_sparsify_group);
  for (const char* name : {"clip", "siglip", "sparc", "filip", "pacl", "gloria", "mgca", "weighted_sum"})
    runners.add(name, pairwise_objective(name));
}

}  // namespace tessera::probe
