#include <cmath>

#include <ATen/ATen.h>

#include <tessera/objectives/caption_settings.h>
#include <tessera/objectives/contrastive_objective.h>

namespace tessera {

Needs PairSettings::needs(ViewNeeds image, ViewNeeds text) const {
  image.optional = text.optional = skip_absent;
  return {.images = {{image_view, image}}, .texts = {{text_view, text}}, .duplicates = mask_duplicates};
}

Needs CaptionSettings::needs(ViewNeeds image, ViewNeeds text) const {
  return {.images = {{image_view, image}}, .texts = {{text_view, text}}, .duplicates = duplicates != "negative"};
}

void Losses::add(std::string name, double weight, const at::Tensor& loss) {
  total = total.defined() ? total + weight * loss : weight * loss;
  terms.emplace_back(std::move(name), loss);
}

ContrastiveObjective::ContrastiveObjective(const ObjectiveContext& context, std::optional<double> initial_logit_scale, bool learned) {
  if (!learned) return;
  initial_logit_scale_ = initial_logit_scale;
  logit_scale_ = context.logit_scale;
  if (!logit_scale_.defined())
    logit_scale_ = register_parameter("logit_scale", at::full({}, initial_logit_scale.value_or(kInitialLogitScale), at::kFloat));
}

void ContrastiveObjective::after_step(const StepContext& /*done*/) {
  if (!logit_scale_.defined() || !logit_scale_.requires_grad()) return;
  const at::NoGradGuard no_grad;
  logit_scale_.clamp_(0.0, kLargestLogitScale);
}

std::map<std::string, double> ContrastiveObjective::chance_levels(std::int64_t pairs) const {
  std::map<std::string, double> levels;
  for (const std::string& term : contrasts_) levels[term] = std::log(static_cast<double>(pairs));
  return levels;
}

at::Tensor ContrastiveObjective::scale(at::ScalarType dtype) const {
  return logit_scale_.to(dtype).exp();
}

at::Tensor ContrastiveObjective::inverse_temperature(std::optional<double> temperature, at::ScalarType dtype) const {
  if (!temperature) return scale(dtype);
  return at::full({}, 1.0 / *temperature, logit_scale_.options().dtype(dtype).requires_grad(false));
}

}  // namespace tessera
