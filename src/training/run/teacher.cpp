#include "src/training/run/teacher.h"

#include <algorithm>

#include <ATen/ATen.h>

namespace tessera {

std::string objective_name(const std::string& name) {
  return name == "logit_scale" || name == "logit_bias" ? name : "objective." + name;
}

std::map<std::string, at::Tensor> objective_state(const Objective& objective) {
  std::map<std::string, at::Tensor> out;
  for (const auto& item : objective.named_parameters()) out[objective_name(item.key())] = item.value();
  for (const auto& item : objective.named_buffers()) out[objective_name(item.key())] = item.value();
  return out;
}

std::map<std::string, at::Tensor> collect_weights(const DualEncoder& model, const Objective& objective) {
  std::map<std::string, at::Tensor> out = model.state_dict();
  out.merge(objective_state(objective));
  return out;
}

namespace {

void freeze(torch::nn::Module& module) {
  module.eval();
  for (at::Tensor& parameter : module.parameters()) parameter.set_requires_grad(false);
}

}  // namespace

Teacher frozen_teacher(std::shared_ptr<DualEncoder> model, std::optional<double> scale, std::shared_ptr<const Tokenizer> tokenizer) {
  freeze(*model);
  return {std::move(model), nullptr, Ema(std::map<std::string, at::Tensor>(), std::map<std::string, at::Tensor>()), std::move(tokenizer), scale};
}

Teacher make_teacher(std::shared_ptr<DualEncoder> second_model, std::shared_ptr<Objective> second_objective,
                     const DualEncoder& model, const Objective& objective) {
  freeze(*second_model);
  freeze(*second_objective);
  Ema ema(collect_weights(model, objective), collect_weights(*second_model, *second_objective));
  return {std::move(second_model), std::move(second_objective), std::move(ema)};
}

namespace {

// Returns the needs of only those views that use a teacher. No patches are hidden in them, because the teacher sees all patches.
Needs teacher_needs(const Needs& needs) {
  Needs out = needs;
  std::erase_if(out.images, [](const auto& view) { return !view.second.teacher; });
  std::erase_if(out.texts, [](const auto& view) { return !view.second.teacher; });
  for (auto* views : {&out.images, &out.texts})
    for (auto& [name, view] : *views) {
      view.student = true;
      view.hidden = {};
    }
  return out;
}

// Returns a batch that contains only the captions that the teacher must encode.
Batch teacher_batch(const Batch& batch, const Needs& needs) {
  Batch out = batch;
  for (const auto& [name, view] : needs.texts) {
    const auto input = out.texts.find(name);
    if (view.teacher_captions == 0 || input == out.texts.end() || input->second.ids.dim() < 3) continue;
    const std::int64_t count = std::min(view.teacher_captions, input->second.ids.size(1));
    input->second = map_tensors(input->second, [&](const at::Tensor& all) { return all.narrow(1, 0, count); });
  }
  return out;
}

}  // namespace

void add_teacher_features(const Teacher& teacher, const Batch& batch, const Needs& needs, Features& features) {
  const at::NoGradGuard no_grad;
  const Needs wanted = teacher_needs(needs);
  Features seen = teacher.model->forward(teacher_batch(batch, wanted), wanted);
  features.teacher_images.merge(seen.images);  // beside the stored embeddings of other views
  features.teacher_texts.merge(seen.texts);
}

}  // namespace tessera
