#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "src/objectives/add_objective.h"
#include "src/objectives/pairs/features.h"
#include "src/objectives/pairs/matryoshka.h"
#include "src/objectives/pairs/soft_targets.h"
#include "src/objectives/pairs/tiled_losses.h"
#include "src/objectives/stored_teacher.h"
#include <tessera/base/error.h>
#include <tessera/config/file_path.h>
#include <tessera/objectives/caption_settings.h>
#include <tessera/objectives/contrastive_objective.h>
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {

/// Settings that `distill` and `affinity` share.
struct TaughtSettings {
  TaughtSettings() { captions.text_view = "caption"; }

  CaptionSettings captions;
  std::optional<MatryoshkaSettings> matryoshka;
};

void fields(auto& v, TaughtSettings& s) {
  fields(v, s.captions);
  v("matryoshka", s.matryoshka, kMatryoshkaHelp);
}

struct DistillSettings {
  TaughtSettings common;
  config::FilePath teacher;
  std::optional<double> teacher_temperature;
  double clip_weight = 1, distill_weight = 1;
};

void fields(auto& v, DistillSettings& s) {
  v("teacher", s.teacher,
    "the frozen model whose similarities are the targets: a model file, checkpoint, run folder, OpenCLIP checkpoint or folder of a "
    "transformers model; it must tokenize texts as the run does");
  v("teacher_temperature", s.teacher_temperature, "what the teacher's cosines are divided by; null: the teacher's own learned temperature",
    config::above(0));
  v("clip_weight", s.clip_weight, "weight of the contrast", config::at_least(0.0));
  v("distill_weight", s.distill_weight, "weight of the cross-entropy with the teacher's softmaxes", config::at_least(0.0));
  fields(v, s.common);
}

struct AffinitySettings {
  TaughtSettings common;
  std::vector<StoredTeacher> teachers;
  double lambda = 0.75;
  std::optional<double> student_temperature;
};

void fields(auto& v, AffinitySettings& s) {
  v("teachers", s.teachers,
    "the teachers whose embeddings data.teachers holds side by side, in this order: [{width: 768, temperature: 0.01}, ...]");
  v("lambda", s.lambda, "weight of the divergence from the teachers; the contrast has the weight 1 - lambda", config::in_range(0, 1));
  v("student_temperature", s.student_temperature,
    "what the student's cosines are divided by in the divergence; null: the learned temperature, as in the contrast", config::above(0));
  fields(v, s.common);
}

std::optional<config::Problem> validate(const AffinitySettings& s) {
  if (s.teachers.empty()) return config::Problem{"teachers", "is not set: name them, as in [{width: 768, temperature: 0.01}]"};
  return std::nullopt;
}

/// Learning from teachers' similarities: a contrast (multi_positive_clip with the denominator `slot`; `clip` for one caption per image),
/// and soft targets, the softmaxes over the same rows and columns of the teachers' similarities (tiled_soft_targets()).
///   distill   OpenCLIP's DistillClipLoss: clip_weight contrast + distill_weight cross-entropy, with one live, frozen teacher
///   affinity  MobileCLIP (arXiv 2311.17049, eq. 1-3): (1 - lambda) contrast + lambda divergence, the mean over teachers whose embeddings
///             the data hold
/// Terms `loss_contrast` and `loss_distillation`, without weights; with `matryoshka`, `loss_<w>` and these two for each width. Without
/// teachers' embeddings, in evaluation, there is only the contrast. Parameter `logit_scale`.
class Taught : public ContrastiveObjective {
 public:
  Taught(const DistillSettings& s, const ObjectiveContext& context) : Taught("distill", s.common, context) {
    kind_ = SoftTargets::cross_entropy;
    contrast_weight_ = s.clip_weight;
    distill_weight_ = s.distill_weight;
    teacher_model_ = s.teacher.name;
    teacher_temperature_ = s.teacher_temperature;
  }
  Taught(const AffinitySettings& s, const ObjectiveContext& context) : Taught("affinity", s.common, context) {
    kind_ = SoftTargets::divergence;
    contrast_weight_ = 1 - s.lambda;
    distill_weight_ = s.lambda;
    teachers_ = s.teachers;
    student_temperature_ = s.student_temperature;
  }

  /// Throws UserError if the teacher's temperature is unknown, and c10::Error if there are no embeddings of teachers in training, or if
  /// their shapes do not fit.
  Losses forward(const Features& features, const StepContext& context) override {
    const NoAutocast no_autocast;
    const PairFeatures captions = caption_features(features, name_, settings_.captions, {.image_global = true}, context.group);
    PairSet all{{}, {}, captions.relation, settings_.captions.chunk, context.group};
    const bool taught = context.training || features.teacher_images.contains(settings_.captions.image_view);
    std::vector<std::int64_t> widths;
    if (taught) widths = add_teachers(all, features, captions, context);
    if (matryoshka_ && taught) all.taught_texts = context.group.all_gather(all.taught_texts);
    const at::Tensor sharpness = scale(captions.dtype());
    return matryoshka_.loss(captions.image_global, captions.text_global, context.group, [&](const at::Tensor& images, const at::Tensor& texts) {
      PairSet set = all;
      set.images = images;
      set.texts = texts;
      Losses losses;
      losses.add("loss_contrast", taught ? contrast_weight_ : 1, tiled_info_nce(set, sharpness, Denominator::slot).loss);
      if (taught)
        losses.add("loss_distillation", distill_weight_,
                   tiled_soft_targets(set, inverse_temperature(student_temperature_, captions.dtype()), widths, kind_));
      return losses;
    });
  }

  Needs needs() const override {
    Needs needs = settings_.captions.needs();
    std::int64_t width = 0;
    for (const StoredTeacher& teacher : teachers_) width += teacher.width;
    for (ViewNeeds* view : {&needs.images.begin()->second, &needs.texts.begin()->second}) {
      view->teacher = teachers_.empty();
      view->taught = width;
    }
    if (teachers_.empty()) needs.teacher_model = teacher_model_;
    return needs;
  }

  std::vector<std::int64_t> nested_widths() const override { return matryoshka_.widths(); }

 private:
  Taught(const char* name, const TaughtSettings& settings, const ObjectiveContext& context)
      : ContrastiveObjective(context), name_(name), settings_(settings), matryoshka_(settings.matryoshka, name, context) {
    contrasts_ = matryoshka_.names({"loss_contrast"});
  }

  // Sets the teachers' embeddings of `pairs`, and returns each teacher's number of columns. Each teacher's columns are scaled to unit
  // length by themselves; absent captions become 0. The images' are also divided by the teacher's temperature.
  std::vector<std::int64_t> add_teachers(PairSet& pairs, const Features& features, const PairFeatures& captions,
                                         const StepContext& context) const {
    const at::Tensor& given_images = features.teacher_image(settings_.captions.image_view).global;
    const at::Tensor& given_texts = features.teacher_text(settings_.captions.text_view).global;
    if (!given_images.defined()) refuse_missing_feature(name_, "image_global");
    if (!given_texts.defined()) refuse_missing_feature(name_, "text_global");
    const at::Tensor images = given_images.detach().to(captions.dtype());
    at::Tensor texts = given_texts.detach().to(captions.dtype());
    if (texts.dim() == 2) texts = texts.unsqueeze(1);
    const at::IntArrayRef slots = captions.present.sizes();
    TORCH_CHECK(images.dim() == 2 && texts.dim() == 3 && images.size(0) == slots[0] && texts.sizes().slice(0, 2) == slots &&
                    images.size(1) == texts.size(2),
                name_, ": the teachers' embeddings of ", slots[0], " images with ", slots[1],
                " captions must be [B, E] and [B, K, E], got ", images.sizes(), " and ", texts.sizes());
    const std::int64_t all = images.size(1);
    std::vector<StoredTeacher> teachers = teachers_;
    if (teachers.empty()) teachers = {{all, teacher_temperature(context)}};
    std::int64_t first = 0;
    std::vector<std::int64_t> widths;
    std::vector<at::Tensor> of_images, of_texts;
    for (const StoredTeacher& teacher : teachers) {
      TORCH_CHECK(first + teacher.width <= all, name_, ": the teachers' widths add up to more than the ", all, " columns of their embeddings");
      of_images.push_back(unit_rows(images.narrow(1, first, teacher.width)) / teacher.temperature);
      of_texts.push_back(unit_rows(texts.narrow(2, first, teacher.width)));
      widths.push_back(teacher.width);
      first += teacher.width;
    }
    TORCH_CHECK(first == all, name_, ": the teachers' widths add up to ", first, ", but their embeddings have ", all, " columns");
    pairs.taught_images = at::cat(of_images, 1);
    pairs.taught_texts = at::cat(of_texts, 2).masked_fill(captions.present.logical_not().unsqueeze(2), 0.0);
    return widths;
  }

  double teacher_temperature(const StepContext& context) const {
    if (teacher_temperature_) return *teacher_temperature_;
    if (context.teacher_scale) return 1 / *context.teacher_scale;
    user_error("objective ", name_, ": the teacher has no learned temperature: set objective.teacher_temperature");
  }

  const char* name_;
  TaughtSettings settings_;
  Matryoshka matryoshka_;
  SoftTargets kind_ = SoftTargets::divergence;
  double contrast_weight_ = 1, distill_weight_ = 1;
  std::vector<StoredTeacher> teachers_;  // of `affinity`
  std::string teacher_model_;            // of `distill`
  std::optional<double> teacher_temperature_, student_temperature_;
};

}  // namespace

void add_distill(ObjectiveRegistry& list) {
  add_objective<Taught, DistillSettings>(list, "distill", "contrast, and soft targets from a frozen model (OpenCLIP's --distill-model)");
}

void add_affinity(ObjectiveRegistry& list) {
  add_objective<Taught, AffinitySettings>(
      list, "affinity", "contrast, and soft targets from stored embeddings of several teachers (MobileCLIP, Vasu et al. 2024)");
}

}  // namespace tessera
