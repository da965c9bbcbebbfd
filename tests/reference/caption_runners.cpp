#include <ATen/ATen.h>

#include "src/objectives/pairs/relation.h"
#include "src/objectives/flair.h"
#include "tests/reference/all_runners.h"
#include "tests/reference/loss_outputs.h"
#include <tessera/objectives/objective.h>

namespace tessera::probe {
namespace {

Features caption_features_of(const Run& run) {
  Features features;
  TowerFeatures& image = features.images["image"];
  TowerFeatures& text = features.texts["captions"];
  image.global = run.optional_input("image_global");
  image.tokens = run.optional_input("image_tokens");
  text.global = run.input("text_global");
  text.present = run.optional_input("caption_mask");
  features.duplicates.image_group = run.optional_input("image_ids");
  features.duplicates.captions_group = run.optional_input("caption_ids");
  return features;
}

ObjectiveContext width_of(const Run& run) {
  return {.embed_dim = run.input("text_global").size(-1)};
}

Runner caption_objective(const std::string& name) {
  return [name](Run& run) -> Outputs {
    const auto objective = objectives().make({name, run.settings()}, name, width_of(run));
    run.bind_all(*objective);
    return outputs_of(objective->forward(caption_features_of(run), {}));
  };
}

Outputs run_flair(Run& run) {
  Flair flair(config::read<FlairSettings>(run.settings(), "flair"), width_of(run));
  run.bind_all(flair);
  return outputs_of(flair.forward(caption_features_of(run), {}, run.optional_input("negative_slots")));
}

struct LabelsCase {
  std::string duplicates = "negative";
};

template <class Visitor>
void fields(Visitor& v, LabelsCase& s) {
  v("duplicates", s.duplicates, "how duplicates count", config::one_of({"negative", "masked", "positive"}));
}

Outputs run_caption_labels(Run& run) {
  const auto settings = config::read<LabelsCase>(run.settings());
  return {{"labels", caption_labels(run.input("caption_mask"), run.optional_input("image_ids"),
                                    run.optional_input("caption_ids"), settings.duplicates)}};
}

}  // namespace

void add_caption_runners(Runners& runners) {
  for (const char* name : {"multi_positive_clip", "multi_positive_sigmoid", "subcaption_grouping"})
    runners.add(name, caption_objective(name));
  runners.add("flair", run_flair);
  runners.add("caption_labels", run_caption_labels);
}

}  // namespace tessera::probe
