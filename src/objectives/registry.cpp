#include "src/models/room.h"
#include "src/objectives/captioning.h"
#include "src/objectives/clip.h"
#include "src/objectives/cosmos.h"
#include "src/objectives/dino.h"
#include "src/objectives/dreamlip.h"
#include "src/objectives/filip.h"
#include "src/objectives/flair.h"
#include "src/objectives/gloria.h"
#include "src/objectives/koleo.h"
#include "src/objectives/masked_prediction.h"
#include "src/objectives/mgca.h"
#include "src/objectives/multi_positive_clip.h"
#include "src/objectives/multi_positive_sigmoid.h"
#include "src/objectives/pacl.h"
#include "src/objectives/pyramidclip.h"
#include "src/objectives/region_contrast.h"
#include "src/objectives/self_distillation.h"
#include "src/objectives/siglip.h"
#include "src/objectives/sparc.h"
#include "src/objectives/stair.h"
#include "src/objectives/subcaption_grouping.h"
#include "src/objectives/superclip.h"
#include "src/objectives/text_group.h"
#include "src/objectives/weighted_sum.h"
#include <tessera/models/dual_encoder.h>
#include <tessera/objectives/make_objective.h>
#include <tessera/objectives/objective.h>

namespace tessera {
namespace {

template <class Made, class Settings>
void add(ObjectiveRegistry& list, const char* name, const char* help) {
  list.add<Settings>(name, help,
                     [](const Settings& settings, const ObjectiveContext& context) -> std::shared_ptr<Objective> {
                       return std::make_shared<Made>(settings, context);
                     });
}

}  // namespace

ObjectiveContext objective_context(DualEncoder& model) {
  ObjectiveContext context;
  context.embed_dim = model.embed_dim();
  context.shared = &model.shared();
  context.image_width = model.image_tower().encoder().width();
  if (model.has_text_tower()) context.vocab_size = model.text_tower().encoder().vocab_size();
  return context;
}

std::shared_ptr<Objective> make_objective(const config::ModuleSettings& choice, const std::string& path, const ObjectiveContext& context) {
  check_room("weights", path, objectives().resolve(choice, path).settings, [&] {
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
    add<Clip, ClipSettings>(list, "clip", "contrast of global embeddings (Radford et al. 2021)");
    add<Sparc, SparcSettings>(list, "sparc",
                              "contrast of each token with the patches grouped for it, within each pair (Bica et al. 2024)");
    add<Siglip, SiglipSettings>(list, "siglip", "a separate binary decision for every pair of the batch (Zhai et al. 2023)");
    add<Filip, FilipSettings>(list, "filip", "token-wise maximum similarity (Yao et al. 2022)");
    add<Pacl, PaclSettings>(list, "pacl", "patch aligned contrastive learning (Mukhoti et al. 2023)");
    add<Gloria, GloriaSettings>(list, "gloria", "contrast of words with the patches that they attend to (Huang et al. 2021)");
    add<Mgca, MgcaSettings>(list, "mgca", "multi-granularity cross-modal alignment (Wang et al. 2022)");
    add<PyramidClip, PyramidClipSettings>(list, "pyramidclip",
                                          "contrasts of pairs of views over a semantic pyramid (Gao et al. 2022)");
    add<Stair, StairSettings>(list, "stair", "contrast of sparse encodings over the vocabulary (Chen et al. 2023)");
    add<TextGroup, TextGroupSettings>(list, "text_group",
                                      "contrast of images with grouped texts, and reconstruction of the texts from their groups");
    add<MultiPositiveClip, MultiPositiveClipSettings>(list, "multi_positive_clip",
                                                      "contrast of an image with several captions");
    add<MultiPositiveSigmoid, MultiPositiveSigmoidSettings>(
        list, "multi_positive_sigmoid", "a separate binary decision for every image-caption pair, with several captions per image");
    add<SubcaptionGrouping, SubcaptionGroupingSettings>(
        list, "subcaption_grouping", "contrast of each caption with the patches grouped for it (Zheng et al. 2024)");
    add<DreamLip, DreamLipSettings>(list, "dreamlip", "contrast with several captions per image, and of each caption with the "
                                                      "patches grouped for it (Zheng et al. 2024)");
    add<Flair, FlairSettings>(list, "flair", "sigmoid loss on images that are pooled separately for each text (Xiao et al. 2024)");
    add<Cosmos, CosmosSettings>(list, "cosmos",
                                "contrast with captions and self-distillation across modalities (Kim et al. 2024)");
    add<Dino, DinoSettings>(list, "dino", "self-distillation on images without texts (Caron et al. 2021)");
    add<Dino, SelfDistillationSettings>(list, "self_distillation",
                                        "predicts the teacher's output for a large crop from small crops (SILC, TIPS, SigLIP 2)");
    add<MaskedPrediction, MaskedPredictionSettings>(
        list, "masked_prediction", "predicts the teacher's output for hidden patches (iBOT, TIPS, SigLIP 2)");
    add<Koleo, KoleoSettings>(list, "koleo", "pushes images away from their nearest neighbors (DINOv2)");
    add<SuperClip, SuperClipSettings>(list, "superclip",
                                      "classification of the image into the words of its caption (SuperCLIP, 2025)");
    add<RegionContrast, RegionContrastSettings>(
        list, "region_contrast", "contrast of boxes with their phrases and with phrases that almost describe them (FG-CLIP, Xie et "
                                 "al. 2025)");
    add<Captioning, CaptioningSettings>(list, "captioning",
                                        "prediction of captions, and of boxes and their phrases, from the image (CoCa, CapPa, LocCa)");
    add<WeightedSum, WeightedSumSettings>(list, "weighted_sum", "a weighted sum of several objectives");
    return list;
  }();
  return registry;
}

}  // namespace tessera
