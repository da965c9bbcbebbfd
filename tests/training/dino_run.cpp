#include "tests/training/dino_run.h"

#include "tests/training/tiny_run.h"

namespace tessera {
namespace {

constexpr const char* kSmallHead = "out_dim: 16, hidden_dim: 12, bottleneck_dim: 6";

Config config_of(const std::string& run, const std::string& objective, const std::string& last_layer,
                 const std::vector<std::string>& overrides) {
  const std::vector<std::string> all = {"objective=" + objective,
                                        "data.loader.views={global: {count: 2, scale: [0.4, 1], flip: 0.5}, local: {count: "
                                        "2, image_size: 8, scale: [0.1, "
                                        "0.4], color_jitter: {probability: 0.8}}}",
                                        "model.image.encoder.patch_size=4",
                                        "model.image.encoder.layers=2",
                                        "model.image.encoder.drop_path=0.2",
                                        "optimizer.weight_decay=0.04",
                                        "schedule={warmup_steps: 2, warmup_lr: 0, weight_decay_end: 0.4}",
                                        "training={steps: 6, clip_norm: 3, clip_mode: per_tensor, device: cpu}",
                                        "parameters.groups=[{match: ['" + last_layer + "'], frozen_steps: 2}]"};
  return tiny_config(run, with(all, overrides));
}

}  // namespace

Config dino_config(const std::string& run, const std::vector<std::string>& overrides) {
  const std::vector<std::string> all = {"tokenizer=null", "model.text=null", "model.image.projection={name: none}"};
  return config_of(run, std::string("{name: dino, local_crops: 2, ") + kSmallHead + "}", "objective.head.last_layer.*",
                   with(all, overrides));
}

Config silc_config(const std::string& run, const std::vector<std::string>& overrides) {
  return config_of(run,
                   std::string("{name: weighted_sum, objectives: ["
                               "{name: clip, label: clip_0, weight: 0.5, image_view: global_0}, "
                               "{name: clip, label: clip_1, weight: 0.5, image_view: global_1}, "
                               "{name: dino, student_global_crops: false, local_crops: 2, teacher_momentum: "
                               "0.9, teacher_momentum_end: 0.9, ") +
                       kSmallHead + "}]}",
                   "objective.objectives.dino.head.last_layer.*", overrides);
}

Config siglip2_config(const std::string& run, const std::vector<std::string>& overrides) {
  const std::string momentum = ", teacher_momentum: 0.9, teacher_momentum_end: 0.9, ";
  const std::vector<std::string> all = {"model.image.encoder.mask_token=true", "model.image.encoder.drop_path=0"};
  return config_of(run,
                   "{name: weighted_sum, objectives: [{name: siglip}, {name: self_distillation, label: distillation, "
                   "global_crops: 2, local_crops: 2, student_global_crops: false" + momentum +
                       kSmallHead + "}, {name: masked_prediction, weight: 0.25, crops: 2, shape: blocks, share: 0.4" +
                       momentum + kSmallHead + "}, {name: koleo, weight: 0.1, view: local}]}",
                   "objective.objectives.*.head.last_layer.*", with(all, overrides));
}

}  // namespace tessera
