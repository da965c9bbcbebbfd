#include "src/models/room.h"
#include "src/objectives/add_objective.h"
#include "src/objectives/captioning.h"
#include "src/objectives/dino.h"
#include "src/objectives/flair.h"
#include "src/objectives/pyramidclip.h"
#include "src/objectives/stair.h"
#include "src/objectives/superclip.h"
#include "src/objectives/text_group.h"
#include "src/objectives/weighted_sum.h"
#include <tessera/models/dual_encoder.h>
#include <tessera/objectives/make_objective.h>

namespace tessera {
ObjectiveContext objective_context(DualEncoder& model) {
  ObjectiveContext context;
  context.embed_dim = model.embed_dim();
  context.shared = &model.shared();
  context.image_width = model.image_tower().encoder().width();
  if (model.has_text_tower()) context.vocab_size = model.text_tower().encoder().vocab_size();
  return context;
}

std::shared_ptr<Objective> make_objective(const config::ModuleSettings& given, const std::string& path, const ObjectiveContext& context) {
  const config::ModuleSettings choice = objectives().resolve(given, path);
  check_room("weights", path, choice.settings, [&] {
    SharedParameters shared = context.shared != nullptr ? *context.shared : SharedParameters();  // a copy, so that nothing stays shared
    ObjectiveContext same = context;
    same.shared = &shared;
    return tensors_of(*objectives().make(choice, path, same));
  });
  return objectives().make(choice, path, context);
}

ObjectiveRegistry& objectives() {
  static ObjectiveRegistry registry = [] {
    ObjectiveRegistry list("objective");
    add_clip(list);
    add_sparc(list);
    add_siglip(list);
    add_distill(list);
    add_affinity(list);
    add_filip(list);
    add_pacl(list);
    add_gloria(list);
    add_mgca(list);
    add_objective<PyramidClip, PyramidClipSettings>(list, "pyramidclip",
                                          "contrasts of pairs of views over a semantic pyramid (Gao et al. 2022)");
    add_objective<Stair, StairSettings>(list, "stair", "contrast of sparse encodings over the vocabulary (Chen et al. 2023)");
    add_objective<TextGroup, TextGroupSettings>(list, "text_group",
                                      "contrast of images with grouped texts, and reconstruction of the texts from their groups");
    add_multi_positive_clip(list);
    add_multi_positive_sigmoid(list);
    add_subcaption_grouping(list);
    add_dreamlip(list);
    add_objective<Flair, FlairSettings>(list, "flair", "sigmoid loss on images that are pooled separately for each text (Xiao et al. 2024)");
    add_cosmos(list);
    add_objective<Dino, DinoSettings>(list, "dino", "self-distillation on images without texts (Caron et al. 2021)");
    add_objective<Dino, SelfDistillationSettings>(list, "self_distillation",
                                        "predicts the teacher's output for a large crop from small crops (SILC, TIPS, SigLIP 2)");
    add_masked_prediction(list);
    add_koleo(list);
    add_objective<SuperClip, SuperClipSettings>(list, "superclip",
                                      "classification of the image into the words of its caption (SuperCLIP, 2025)");
    add_region_contrast(list);
    add_objective<Captioning, CaptioningSettings>(list, "captioning",
                                        "prediction of captions, and of boxes and their phrases, from the image (CoCa, CapPa, LocCa)");
    add_objective<WeightedSum, WeightedSumSettings>(list, "weighted_sum", "a weighted sum of several objectives");
    return list;
  }();
  return registry;
}

}  // namespace tessera
