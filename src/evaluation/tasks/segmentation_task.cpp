#include <utility>

#include "src/base/printable.h"
#include "src/evaluation/metrics/segmentation.h"
#include "src/evaluation/tasks/candidates.h"
#include "src/evaluation/tasks/conditioned.h"
#include "src/evaluation/tasks/data_task.h"
#include "src/evaluation/tasks/patch_scores.h"
#include "src/evaluation/tasks/segmentation_record.h"
#include "src/models/last_block.h"

namespace tessera {
namespace {

struct SegmentationSettings {
  TaskData data;
  TextList classes;
  TextList templates = {kUsualPrompt};
  std::string by = "patches";
  std::string patches = "cosine";
  std::string last_block = "plain";
  std::string upsample = "bilinear";
  std::string candidates = "present";
  std::optional<WindowSettings> windows;
  std::optional<double> background_threshold;
  std::string threshold_of = "probability";
  std::optional<double> logit_scale;
};

template <class Visitor>
void fields(Visitor& v, SegmentationSettings& s) {
  data_fields(v, s.data);
  v("classes", s.classes,
    "class names, one entry per mask value; empty: those of the source. An entry can have several names, separated by commas "
    "(person, man, woman), of which the best one counts; text before a colon is only displayed (background: sky, wall)");
  v("templates", s.templates, "prompts with {} for the class name; the embeddings of several prompts are averaged");
  v("by", s.by,
    "what is classified; patches: each patch by itself; groups: the image tower's groups, whose class all pixels of the group get "
    "(GroupViT)",
    config::one_of({"patches", "groups"}));
  v("patches", s.patches,
    "how patches are compared with texts; cosine: by the cosine of their embeddings; for models with a text-conditioned pool "
    "(FLAIR) also conditioned: by the cosine of a text's embedding with only that patch pooled for the text, or attention: by the "
    "text's attention to the patch",
    config::one_of({"cosine", "conditioned", "attention"}));
  v("last_block", s.last_block,
    "how the last block of a ViT computes patches; plain: as in training; maskclip, sclip, clearclip, naclip: with the changes of "
    "these papers, which need no training (docs/evaluation.md)",
    config::one_of({"plain", "maskclip", "sclip", "clearclip", "naclip"}));
  v("upsample", s.upsample, "how similarities or group weights of patches are resized to pixels",
    config::one_of({"bilinear", "nearest"}));
  v("candidates", s.candidates,
    "which classes can be predicted for an image; present: those in its ground truth (SPARC's protocol); all: every class; "
    "foreground: every class except background, which is predicted only by background_threshold",
    config::one_of({"present", "foreground", "all"}));
  v("windows", s.windows,
    "segment whole images by sliding windows, with masks at their original size: {short_side: 336, size: 224, stride: 112}; null: "
    "segment images and masks as cropped by the model's preprocessing");
  v("background_threshold", s.background_threshold,
    "pixels whose best class scores below this value become background; null: only pixels whose best name is a background name",
    config::in_range(-1, 1));
  v("threshold_of", s.threshold_of,
    "what background_threshold applies to; probability: the softmax, over all names, of logit_scale times the cosines; cosine: the "
    "cosine",
    config::one_of({"probability", "cosine"}));
  v("logit_scale", s.logit_scale,
    "factor of the cosines in the softmax of threshold_of: probability; null: the model's learned factor, or 100 if it has none or several",
    config::above(0));
}

std::optional<config::Problem> validate(const SegmentationSettings& settings) {
  if (settings.by == "groups" && settings.last_block != "plain")
    return config::Problem{"last_block", "changes the patches, but `by` is groups: set one of the two to its default"};
  if (settings.by == "groups" && settings.windows)
    return config::Problem{"windows", "is for patches, but `by` is groups: set one of the two to its default"};
  if (settings.by == "groups" && settings.background_threshold)
    return config::Problem{"background_threshold", "is for patches, but `by` is groups: set one of the two to its default"};
  if (settings.by == "groups" && settings.patches != "cosine")
    return config::Problem{"patches", "sets how patches are compared, but `by` is groups: set one of the two to its default"};
  if (settings.patches != "cosine" && settings.last_block != "plain")
    return config::Problem{"last_block", concat("changes the patch embeddings, but `patches` is ", settings.patches,
                                                ", whose pool was trained on plain ones: set one of the two to its default")};
  if (settings.patches == "attention" && settings.background_threshold && settings.threshold_of == "probability")
    return config::Problem{"threshold_of", "is probability, which needs cosines, but patches: attention gives weights: take cosine, "
                                           "and background_threshold applies to the weight"};
  return check_templates(settings.templates);
}

/// The names of mask classes; each name is a text query. A class can have several names ("person, man, woman"). It can also have
/// a display name, which is not a text query ("background: sky, wall").
struct ClassQueries {
  std::vector<std::string> classes;    // display name of each class: the text before the colon, or the first name
  std::vector<std::string> names;      // all names, class by class
  std::vector<std::int64_t> class_of;  // the class of each name
};

/// Parses the setting `classes`. Throws UserError for an empty name.
ClassQueries class_queries(const std::vector<std::string>& lines) {
  ClassQueries out;
  for (const std::string& line : lines) {
    const std::size_t colon = line.find(':');
    const std::size_t first = out.names.size();
    for (const std::string& part : split(colon == std::string::npos ? line : line.substr(colon + 1), ',')) {
      const std::string name(strip(part));
      if (name.empty())
        user_error("segmentation.classes: class ", out.classes.size(), ", \"", printable(line, 60),
                   "\", has an empty name: expected NAME, NAME, ... or CLASS: NAME, NAME, ...");
      out.names.push_back(name);
      out.class_of.push_back(std::ssize(out.classes));
    }
    out.classes.push_back(colon == std::string::npos ? out.names[first] : std::string(strip(line.substr(0, colon))));
  }
  return out;
}

/// The classes of the masks, and the text queries of these classes.
struct AskedClasses {
  MaskClasses masks;
  ClassQueries queries;
  NamedClasses matched;
};

std::vector<std::string> displayed(const std::vector<std::string>& lines) {
  return class_queries(lines).classes;
}

/// Returns the names that a task gives the classes of masks, in the order of the data's `known` names. Throws TaskMisfit if the numbers
/// of names differ, or if only some of the names can be matched.
std::pair<std::vector<std::string>, NamedClasses> in_order_of(const std::vector<std::string>& known,
                                                              std::vector<std::string> names, const Source& source) {
  const auto given = std::ssize(names), wanted = std::ssize(known);
  if (wanted == 0) return {std::move(names), {}};
  if (given != wanted)
    throw TaskMisfit(concat("segmentation.classes lists ", given, given == 1 ? " class" : " classes", ", but ",
                            source.describe(), " has ", wanted, ": list one for each, in the data's order"));
  const NamedClasses matched = match_names(displayed(names), displayed(known));
  if (!matched.by_name) return {std::move(names), matched};
  std::vector<std::string> sorted;
  for (const std::int64_t place : matched.place) {
    if (place < 0)
      throw TaskMisfit(concat("segmentation.classes has some names of ", source.describe(), " at other positions (",
                              matched.note, "): list all names of the data, or keep their order"));
    sorted.push_back(names[static_cast<std::size_t>(place)]);
  }
  return {std::move(sorted), matched};
}

class SegmentationTask final : public DataTask<SegmentationSettings> {
 public:
  std::string rule() const override {
    std::string rule = concat("Each pixel takes the class whose text is nearest to its ", by_groups() ? "group" : "patch");
    if (settings_.candidates == "present")
      rule += ", among the classes that occur in the image's true mask, without the background, whose pixels count as wrong (candidates: "
              "present).";
    else if (settings_.candidates == "all")
      rule += ", among all classes, the background included (candidates: all).";
    else
      rule += ", among all classes except the background (candidates: foreground).";
    if (settings_.patches == "conditioned")
      rule += " A text is compared with its pooling of each single patch by the objective's pool (patches: conditioned).";
    if (settings_.patches == "attention")
      rule += " A patch's score is the text's attention to it in the objective's pool (patches: attention).";
    if (settings_.last_block != "plain")
      rule += " The last block of the ViT is changed as in " + settings_.last_block + " (last_block).";
    return rule + kIouRule;
  }

  void check(const EvaluationContext& context) const override {
    check_conditioned(context, "segmentation.patches", settings_.patches, "cosine");
    const AskedClasses classes = classes_in(context);
    if (classes.masks.drawn) check_masks(classes.masks, "source", settings_.data.max_samples);
  }

  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    if (settings_.patches == "cosine") {
      const AskedClasses classes = classes_in(context);
      const TowerFeatures names = embed_classes(embedder, classes.queries.names, settings_.templates);
      return measure(embedder, context, classes, names, cosines_of_patches(names.global, last_block_named(settings_.last_block)));
    }
    const ConditionedEmbedder through = conditioned(embedder, context, "segmentation.patches", settings_.patches, "cosine");
    const AskedClasses classes = classes_in(context);
    const TowerFeatures names = embed_classes(through, classes.queries.names, settings_.templates);
    TaskResult result = measure(through, context, classes, names, conditioned_patches(through, names, settings_.patches == "attention"));
    result.data += concat(" (patches: ", settings_.patches, ")");
    return result;
  }

 private:
  Joined joined() const override { return Joined::none; }

  TaskResult measure(const Embedder& embedder, const EvaluationContext& context, const AskedClasses& classes,
                     const TowerFeatures& names, const PatchScores& patches) const {
    const metrics::SegmentationOptions options = options_for(embedder, context, classes);
    Pass pass = pass_over(classes.masks.source, settings_.data.max_samples, embedder, context,
                          by_groups() ? ViewNeeds{.slots = true, .attention = true} : patches.needs);
    pass.order = order_of(joined());
    if (classes.masks.drawn) pass.required = masked();
    if (settings_.windows) pass.images = EvaluationImages::decoded;
    SegmentationRecord record(classes.masks, pass.total(), context.images);
    TaskResult result;
    result.classes = classes.queries.classes;
    result.prompts = settings_.templates.items;
    add_note(classes.matched, result);
    pass.run(result, settings_.windows ? by_windows(pass, patches, options, classes, record)
                                       : by_whole_images(names.global, patches, options, classes, record));
    record.write(result);
    return result;
  }

  /// Returns the classes of the task. Throws TaskMisfit if they do not fit the data's classes. Data without masks fit an evaluation
  /// that shows images: the images are then colored, but nothing is measured.
  AskedClasses classes_in(const EvaluationContext& context) const {
    const auto source = source_in(context);
    const bool drawn = !context.images || some_sample_has(*source, settings_.data.max_samples, masked());
    const auto [names, matched] = in_order_of(drawn ? source->class_names() : std::vector<std::string>{},
                                              class_names_for(settings_.classes, *source, "segmentation"), *source);
    ClassQueries queries = class_queries(names);
    const std::vector<std::string> own = drawn ? displayed(source->class_names()) : std::vector<std::string>{};
    MaskClasses masks = mask_classes(source, queries.classes, "segmentation.classes", {}, own);
    masks.drawn = drawn;
    if (settings_.background_threshold && !masks.background())
      throw TaskMisfit(concat("segmentation.background_threshold is set, but ", source->describe(),
                              " has no background class: set its background_class, or leave the threshold out"));
    leave_out_ignored(queries, masks);
    return {std::move(masks), std::move(queries), matched};
  }

  /// Removes the names of ignored classes, so that these classes are not predicted.
  static void leave_out_ignored(ClassQueries& queries, const MaskClasses& masks) {
    for (std::size_t i = queries.names.size(); i-- > 0;) {
      if (!masks.is_ignored(queries.class_of[i])) continue;
      queries.names.erase(queries.names.begin() + static_cast<std::ptrdiff_t>(i));
      queries.class_of.erase(queries.class_of.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  metrics::SegmentationOptions options_for(const Embedder& embedder, const EvaluationContext& context, const AskedClasses& classes) const {
    metrics::SegmentationOptions options;
    if (!keeps_shapes(embedder.preprocessing()) || by_groups())
      options.grid = {embedder.grid().height, embedder.grid().width};
    options.upsample = settings_.upsample;
    options.candidates = !classes.masks.drawn && settings_.candidates == "present" ? "all" : settings_.candidates;
    options.background_index = classes.masks.background();
    options.class_of_name = classes.queries.class_of;
    if (settings_.background_threshold) {
      options.background_threshold = {*settings_.background_threshold, std::nullopt};
      if (settings_.threshold_of == "probability")
        options.background_threshold->logit_scale = settings_.logit_scale.value_or(context.logit_scale);
    }
    return options;
  }

  bool by_groups() const { return settings_.by == "groups"; }

  /// Returns the body of a pass that segments the preprocessed images, which are resized and cropped.
  /// Arguments passed by reference must outlive the pass.
  BatchBody by_whole_images(const at::Tensor& names, const PatchScores& patches,
                              const metrics::SegmentationOptions& options, const AskedClasses& classes,
                              SegmentationRecord& record) const {
    return [this, names, &patches, &options, &classes, &record](const std::vector<EvaluationSample>& samples,
                                                      const TowerFeatures& features) {
      const std::vector<at::Tensor> targets = make_masks(samples, classes.masks);
      const std::vector<at::Tensor> found = by_groups()
                                                ? predict_by_groups(features, names, at::stack(targets), options).unbind()
                                                : predict_by_patches(features, patches, targets, options);
      for (std::size_t i = 0; i < samples.size(); ++i)
        record.add(samples[i], targets[i], found[i], [&] { return to_image(samples[i].pixels); });
    };
  }

  /// Returns the body of a pass that segments uncropped images with sliding windows. Masks keep their original size. Arguments passed by
  /// reference must outlive the pass.
  BatchBody by_windows(const Pass& pass, const PatchScores& patches, const metrics::SegmentationOptions& options,
                       const AskedClasses& classes, SegmentationRecord& record) const {
    const ImageWindows windows(pass.embedder, *settings_.windows, patches, pass.context.batch_size);
    return [windows, &options, &classes, &record](const std::vector<EvaluationSample>& samples, const TowerFeatures&) {
      for (const EvaluationSample& read : samples) {
        const Sample& sample = read.sample;
        const at::Tensor target = mask_of(sample.mask, {sample.image.height, sample.image.width}, sample.key, classes.masks);
        const at::Tensor found = metrics::segment_pixels(windows.scores(sample.image, sample.key), target, options);
        record.add(read, target, found, [&] { return sample.image; });
      }
    };
  }

  static std::vector<at::Tensor> predict_by_patches(const TowerFeatures& images, const PatchScores& patches,
                                                    const std::vector<at::Tensor>& targets,
                                                    const metrics::SegmentationOptions& options) {
    const std::vector<at::Tensor> maps = images.grids.defined()
                                             ? maps_of_own_shapes(images, patches)
                                             : patches.maps(images, {options.grid[0], options.grid[1]}).unbind();
    std::vector<at::Tensor> found;
    for (std::size_t i = 0; i < maps.size(); ++i) found.push_back(metrics::segment_pixels(maps[i], targets[i], options));
    return found;
  }

  /// Returns the score maps of images whose grids of patches differ, one map for each image.
  static std::vector<at::Tensor> maps_of_own_shapes(const TowerFeatures& images, const PatchScores& patches) {
    std::vector<at::Tensor> maps;
    for (std::int64_t i = 0; i < images.grids.size(0); ++i) {
      const auto* sides = images.grids.const_data_ptr<std::int64_t>() + 2 * i;
      const auto real = [&](const at::Tensor& tensor) {
        return tensor.defined() ? tensor.narrow(0, i, 1).narrow(1, 0, sides[0] * sides[1]) : tensor;
      };
      TowerFeatures one;
      one.global = images.global.narrow(0, i, 1);
      one.tokens = real(images.tokens);
      one.dense = real(images.dense);
      maps.push_back(patches.maps(one, {sides[0], sides[1]})[0]);
    }
    return maps;
  }

  static at::Tensor predict_by_groups(const TowerFeatures& images, const at::Tensor& names, const at::Tensor& targets,
                                      const metrics::SegmentationOptions& options) {
    if (!images.slots.defined() || !images.attention.defined() || images.slots.size(2) != names.size(1))
      user_error("segmentation.by: this model's image tower outputs no groups in the space of its texts: take one that ",
                 "reads out by groups, as groupvit does, or by: patches");
    return metrics::zero_shot_segmentation_by_groups(images.slots, images.attention, names, targets, options);
  }
};

}  // namespace

void add_segmentation(TaskRegistry& list) {
  add_task<SegmentationTask>(list, "segmentation", "zero-shot segmentation by patches (SPARC)");
}

}  // namespace tessera
