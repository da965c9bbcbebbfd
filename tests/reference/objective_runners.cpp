#include <cmath>

#include <ATen/ATen.h>

#include "src/models/token_multi_hot.h"
#include "src/objectives/dino.h"
#include "tests/reference/all_runners.h"
#include "tests/reference/loss_outputs.h"
#include "tests/reference/training_mode.h"
#include <tessera/objectives/objective.h>
#include <tessera/ops/flops_regularizer.h>
#include <tessera/ops/sparsify_group.h>

namespace tessera::probe {
namespace {

Features encode_images(const Run& run) {
  Features features;
  TowerFeatures& image = features.images["image"];
  TowerFeatures& text = features.texts["caption"];
  image.global = run.optional_input("image_global");
  image.tokens = run.optional_input("image_tokens");
  text.global = run.optional_input("text_global");
  text.tokens = run.optional_input("text_tokens");
  text.mask = run.optional_input("text_mask");
  image.encoder_tokens = run.optional_input("image_features");
  features.duplicates.image_group = run.optional_input("image_ids");
  const at::Tensor ids = run.optional_input("text_ids");  // one id per caption or, with more than one dimension, token ids
  if (ids.defined() && ids.dim() > 1)
    text.input = text_input(ids, text.mask);
  else
    features.duplicates.caption_group = ids;
  if (!run.has("teacher_image")) return features;
  text.present = run.optional_input("caption_mask");
  (text.global.dim() == 3 ? features.duplicates.captions_group : features.duplicates.caption_group) = run.optional_input("caption_ids");
  features.teacher_images["image"].global = run.input("teacher_image");
  features.teacher_texts["caption"].global = run.input("teacher_text");
  return features;
}

Outputs run_objective(Run& run, const std::string& name, const Features& features, std::int64_t step) {
  ObjectiveContext widths;
  for (const at::Tensor& embedding : {features.text().global, features.text().tokens, features.image().global})
    if (embedding.defined()) widths.embed_dim = embedding.size(-1);
  const TrainingMode mode = training_mode_of(run.settings());
  const auto objective = objectives().make({name, mode.settings}, name, widths);
  run.bind_all(*objective);
  StepContext context;
  context.step = step;
  context.inspect = true;
  context.training = mode.training;
  for (const std::string& parameter : run.parameter_names())
    if (parameter.ends_with("teacher_logit_scale")) context.teacher_scale = std::exp(run.parameter(parameter).item<double>());
  Outputs out = outputs_of(objective->forward(features, context));
  for (const auto& [ours, theirs] : {std::pair("loss_contrast", "contrastive_loss"), std::pair("loss_distillation", "distill_loss")})
    if (out.contains(ours)) out[theirs] = out.at(ours);
  return out;
}

// Runs objectives on the features of one image view and one caption.
Runner pairwise_objective(const std::string& name) {
  return [name](Run& run) -> Outputs { return run_objective(run, name, encode_images(run), 0); };
}

Outputs run_stair(Run& run) {
  Features features;
  features.images["image"].global = run.input("image_global");
  TowerFeatures& text = features.texts["caption"];
  text.global = run.input("text_global");
  if (run.has("text_ids")) text.input = text_input(run.input("text_ids"), run.optional_input("text_mask"));
  return run_objective(run, "stair", features, run.input("step").item<std::int64_t>());
}

struct MultiHotCase {
  std::int64_t vocab_size = 0;
  std::vector<std::int64_t> special_token_ids = {0, 100, 101, 102, 103};
};

template <class Visitor>
void fields(Visitor& v, MultiHotCase& s) {
  v("vocab_size", s.vocab_size, "V", config::at_least(1));
  v("special_token_ids", s.special_token_ids, "ids that never count");
}

Outputs run_token_multi_hot(Run& run) {
  const auto settings = config::read<MultiHotCase>(run.settings());
  const at::Tensor special = at::tensor(settings.special_token_ids, at::kLong).to(run.device());
  return {{"multi_hot", token_multi_hot(run.input("text_ids"), run.input("text_mask"), settings.vocab_size, special)
                            .to(run.parameter_dtype())}};
}

struct FlopsCase {
  std::vector<std::int64_t> rows_per_rank;
};

template <class Visitor>
void fields(Visitor& v, FlopsCase& s) {
  v("rows_per_rank", s.rows_per_rank, "number of rows on each rank; empty: one process");
}

// If the case lists rows per rank, computes the sums separately for the rows of each rank.
Outputs run_flops_regularizer(Run& run) {
  const auto settings = config::read<FlopsCase>(run.settings());
  const at::Tensor& encoding = run.input("encoding");
  const auto rows = static_cast<double>(encoding.size(0));
  if (settings.rows_per_rank.empty())
    return {{"loss", flops_regularizer(encoding)}, {"column_mean", flops_column_sums(encoding) / rows}};
  std::vector<at::Tensor> sums;
  for (const at::Tensor& part : encoding.split_with_sizes(settings.rows_per_rank))
    sums.push_back(flops_column_sums(part));
  const at::Tensor of_ranks = at::stack(sums), mean = of_ranks.sum(0) / rows;
  return {{"loss", mean.square().sum()}, {"column_mean", mean}, {"rank_column_sum", of_ranks}};
}

Outputs run_sparsify_group(Run& run) {
  const auto settings = config::read<SparsifySettings>(run.settings(), "sparsify_group");
  const at::Tensor &text = run.input("text_tokens"), &image = run.input("image_tokens"), &mask = run.input("text_mask");
  return {{"grouped", sparsify_group(text, image, mask, settings)},
          {"weights", sparsify_weights(text, image, mask, settings)}};
}

struct DinoHeadCase : DinoHeadSettings {
  std::int64_t in_dim = 0;
};

template <class Visitor>
void fields(Visitor& v, DinoHeadCase& s) {
  v("in_dim", s.in_dim, "width of the input", config::at_least(1));
  fields(v, static_cast<DinoHeadSettings&>(s));
}

Outputs run_dino_head(Run& run) {
  const auto settings = config::read<DinoHeadCase>(run.settings(), "");
  DinoHead head(settings, settings.in_dim);
  run.bind_all(head);
  const at::Tensor bottleneck = head.bottleneck(run.input("input"));
  return {{"bottleneck", bottleneck}, {"logits", at::linear(bottleneck, head.last_layer())}};
}

// The settings of the loss as the reference cases store them, together with sizes and the length of the run.
struct DinoLossCase : DinoLossSettings {
  std::int64_t out_dim = 65536;
  std::int64_t crops = 10;
  std::int64_t global_crops = 2;
  std::int64_t epochs = 100;
};

template <class Visitor>
void fields(Visitor& v, DinoLossCase& s) {
  v("out_dim", s.out_dim, "K", config::at_least(1));
  v("crops", s.crops, "of an image, including global ones", config::at_least(1));
  v("global_crops", s.global_crops, "large ones", config::at_least(1));
  v("epochs", s.epochs, "length of the run", config::at_least(1));
  fields(v, static_cast<DinoLossSettings&>(s));
}

at::Tensor temperature_of(const DinoLossSettings& settings, const at::Tensor& epochs) {
  at::Tensor out = at::empty(epochs.sizes(), at::kDouble);
  for (std::int64_t i = 0; i < epochs.numel(); ++i)
    out.view(-1)[i] = teacher_temperature_at(epochs.reshape(-1)[i].item<std::int64_t>(), settings);
  return out.to(at::kFloat);
}

Outputs run_dino_loss(Run& run) {
  const auto settings = config::read<DinoLossCase>(run.settings(), "");
  DinoLoss loss(settings, settings.out_dim);
  run.bind_all(loss);
  const at::Tensor& teacher = run.input("teacher_logits");
  const at::Tensor probabilities = loss.probabilities(teacher, run.input("epoch").item<std::int64_t>());
  const at::Tensor value =
      loss.forward(run.input("student_logits").chunk(settings.crops), probabilities.chunk(settings.global_crops));
  loss.move_center(teacher, {});
  return {{"loss", value},
          {"center", loss.named_buffers()["center"]},
          {"teacher_temperature", temperature_of(settings, run.input("epoch"))}};
}

Outputs run_teacher_temperature_schedule(Run& run) {
  const auto settings = config::read<DinoLossCase>(run.settings(), "");
  return {{"temperature", temperature_of(settings, run.input("epoch"))}};
}

}  // namespace

void add_objective_runners(Runners& runners) {
  runners.add("sparsify_group", run_sparsify_group);
  runners.add("stair", run_stair);
  runners.add("token_multi_hot", run_token_multi_hot);
  runners.add("flops_regularizer", run_flops_regularizer);
  runners.add("dino_head", run_dino_head);
  runners.add("dino_loss", run_dino_loss);
  runners.add("teacher_temperature_schedule", run_teacher_temperature_schedule);
  for (const char* name : {"clip", "siglip", "sparc", "filip", "pacl", "gloria", "mgca", "weighted_sum", "distill", "affinity"})
    runners.add(name, pairwise_objective(name));
}

}  // namespace tessera::probe
