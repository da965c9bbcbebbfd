#include <ATen/ATen.h>

#include "src/objectives/superclip.h"
#include "tests/reference/all_runners.h"
#include "tests/reference/training_mode.h"
#include <tessera/ops/numeric.h>

namespace tessera::probe {
namespace {

/// The settings of the cases of `superclip`, and of the cases of its parts.
struct SuperClipCase : SuperClipSettings {
  bool training = true;
};

template <class Visitor>
void fields(Visitor& v, SuperClipCase& s) {
  fields(v, static_cast<SuperClipSettings&>(s));
  v("training", s.training, "mode of the module");
}

struct HeadModule : torch::nn::Module {
  explicit HeadModule(const SuperClipSettings& s)
      : head(register_module("head", std::make_shared<SuperClipHead>(s.width.value(), s.vocab_size.value(), s.layers,
                                                                     s.mlp_ratio))) {}
  std::shared_ptr<SuperClipHead> head;
};

Outputs run_superclip_head(Run& run) {
  HeadModule module(config::read<SuperClipCase>(run.settings(), run.path()));
  run.bind_all(module);
  const NoAutocast no_autocast;  // the objective turns autocast off, too
  return {{"logits", module.head->linear()(module.head->hidden(to_compute(run.input("image_features"))))}};
}

Outputs run_superclip_targets(Run& run) {
  const auto settings = config::read<SuperClipCase>(run.settings(), run.path());
  const std::int64_t size = settings.vocab_size.value();
  const WordBags bags =
      word_bags(run.input("text_ids"), run.optional_input("text_mask"), size, settings.ignored_ids);
  at::Tensor documents = run.parameter("document_count"), captions = run.parameter("caption_count");
  if (settings.training) {
    const at::Tensor counted = count_words(bags);
    documents = documents + counted.narrow(0, 0, size);
    captions = captions + counted[size];
  }
  const at::Tensor weights = word_weights(bags, documents, captions, settings.idf);
  const at::Tensor targets = at::zeros({weights.size(0), size}, weights.options())
                                 .scatter_add(1, bags.ids.masked_fill(~bags.used, 0), weights);
  return {{"targets", targets.to(run.parameter_dtype())},
          {"updated.document_count", documents},
          {"updated.caption_count", captions}};
}

Outputs run_superclip(Run& run) {
  const TrainingMode mode = training_mode_of(run.settings());
  const auto objective = objectives().make({"superclip", mode.settings}, "superclip", {});
  run.bind_all(*objective);
  Features features;
  features.images["image"].encoder_tokens = run.input("image_features");
  features.texts["caption"].input = text_input(run.input("text_ids"), run.optional_input("text_mask"));
  StepContext context;
  context.training = mode.training;
  Outputs outputs{{"loss", objective->forward(features, context).total}};
  for (const auto& item : objective->named_buffers()) outputs["updated." + item.key()] = item.value();
  return outputs;
}

}  // namespace

void add_superclip_runners(Runners& runners) {
  runners.add("superclip_head", run_superclip_head);
  runners.add("superclip_targets", run_superclip_targets);
  runners.add("superclip", run_superclip);
}

}  // namespace tessera::probe
