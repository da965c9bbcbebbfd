#include <array>
#include <map>

#include "src/evaluation/tasks/data_task.h"
#include "src/evaluation/tasks/patch_scores.h"
#include <tessera/data/image/transforms.h>
#include <tessera/ops/roi_align.h>

namespace tessera {
namespace {

struct FgOvdSettings {
  TaskData data;
  std::map<std::string, config::ModuleSettings> sets;
  std::string prompt_prefix;
};

template <class Visitor>
void fields(Visitor& v, FgOvdSettings& s) {
  data_fields(v, s.data);
  v("sets", s.sets,
    "data sets by difficulty, each of which is reported separately: {hard: {name: json_lines, ...}, easy: ...}; empty: only `source`");
  v("prompt_prefix", s.prompt_prefix, "text put before every text, such as \"a photo of \"");
}

std::optional<config::Problem> validate(const FgOvdSettings& settings) {
  if (settings.sets.empty() || !settings.data.source) return std::nullopt;
  return config::Problem{"sets", "is set, and `source` is, too: set only one of the two"};
}

bool has_choice(const ObjectAnnotation& object) {
  return object.box[2] > 0 && object.box[3] > 0 && !object.phrase.empty() && !object.negatives.empty();
}

Required with_choices() {
  return {[](const Sample& sample) { return std::ranges::any_of(sample.objects, has_choice); }, "no_phrase_negatives",
          "a box with a phrase and hard negatives", "phrase_negatives"};
}

/// The visible boxes of a batch. Each has several texts, of which the model must choose one.
struct BoxChoices {
  std::vector<float> corners;         // left, top, right and bottom of each box, in units of patches
  std::vector<std::int64_t> image;    // the index of each box's image in the batch
  std::vector<std::string> texts;     // for each box, its phrase and then its negatives
  std::vector<std::int64_t> options;  // number of texts of each box
  std::int64_t out_of_sight = 0;      // number of boxes outside of the preprocessed images

  BoxChoices(const std::vector<EvaluationSample>& samples, const Preprocessing& preprocessing, config::Size grid,
             const std::string& prefix) {
    for (std::size_t i = 0; i < samples.size(); ++i)
      for (const ObjectAnnotation& object : samples[i].sample.objects)
        if (has_choice(object))
          add(samples[i].sample, object, static_cast<std::int64_t>(i), preprocessing, grid, prefix);
  }

 private:
  void add(const Sample& sample, const ObjectAnnotation& object, std::int64_t place, const Preprocessing& preprocessing,
           config::Size grid, const std::string& prefix) {
    const auto shares = preprocessed_box(object.box, sample.image.height, sample.image.width, preprocessing);
    if (shares[0] >= 1 || shares[1] >= 1 || shares[2] <= 0 || shares[3] <= 0) {
      ++out_of_sight;
      return;
    }
    for (std::size_t i = 0; i < shares.size(); ++i)
      corners.push_back(static_cast<float>(shares[i] * static_cast<double>(i % 2 == 0 ? grid.width : grid.height)));
    image.push_back(place);
    texts.push_back(prefix + object.phrase);
    for (const std::string& negative : object.negatives) texts.push_back(prefix + negative);
    options.push_back(1 + std::ssize(object.negatives));
  }
};

/// Returns the embeddings of boxes, [K, D]. An embedding is the mean of the patches in the box.
at::Tensor embed_boxes(const at::Tensor& patches, const BoxChoices& choices, config::Size grid) {
  check_patch_grid("fgovd", patches, grid, ", and the embedding of a box is made from patches");
  return roi_align(patches.unflatten(1, {grid.height, grid.width}), at::tensor(choices.corners).view({-1, 4}),
                   at::tensor(choices.image, at::kLong))
      .flatten(1);
}

/// Classifies boxes, where each box has its own list of candidate texts (FG-OVD, Bianchi et al. 2024).
class FgOvdTask final : public DataTask<FgOvdSettings> {
 public:
  void check(const EvaluationContext& context) const override {
    for (const auto& [name, order] : sets())
      check_samples(*open_source(order, context), name.empty() ? "source" : "sets." + name, settings_.data.max_samples, with_choices());
  }

  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    TaskResult result;
    for (const auto& [name, order] : sets()) measure(name.empty() ? "" : name + "_", order, embedder, context, result);
    return result;
  }

 private:
  Required required() const override { return with_choices(); }

  /// Returns the data sets with their names, which are degrees of difficulty. If there is only one data set, its name is empty.
  std::vector<std::pair<std::string, SourceOrder>> sets() const {
    if (settings_.sets.empty()) return {{"", order_of(joined())}};
    std::vector<std::pair<std::string, SourceOrder>> out;
    for (const auto& [name, source] : settings_.sets)
      out.emplace_back(name, SourceOrder{.key = "fgovd.sets." + name, .choice = source, .joined = joined()});
    return out;
  }

  void measure(const std::string& prefix, const SourceOrder& order, const Embedder& embedder, const EvaluationContext& context,
               TaskResult& result) const {
    Pass pass = pass_over(order, settings_.data.max_samples, embedder, context, {.dense = true});
    pass.reads_pixels = false;
    std::vector<std::int64_t> ranks, sample;  // for each box: the rank of its right phrase (0 is best), and the index of its image
    std::int64_t seen = 0;
    const std::string before = result.data;
    pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
      const BoxChoices choices(samples, embedder.preprocessing(), embedder.grid(), settings_.prompt_prefix);
      if (choices.out_of_sight > 0) result.skipped["box_out_of_sight"] += choices.out_of_sight;
      if (!choices.image.empty()) rank_phrases(choices, features, embedder, ranks);
      for (const std::int64_t image : choices.image) sample.push_back(seen + image);
      seen += std::ssize(samples);
    });
    if (!before.empty()) result.data = before + ", " + result.data;
    if (ranks.empty()) user_error(pass.source->describe(), ": all boxes are outside of the preprocessed images");
    const at::Tensor rank = at::tensor(ranks, at::kLong), of = at::tensor(sample, at::kLong);
    const at::Tensor place = rank.to(at::kDouble) + 1;
    add_share(prefix + "accuracy", rank.eq(0).to(at::kDouble).mean().item<double>(), {.part = rank.eq(0), .sample = of}, result);
    result.add_number(prefix + "mean_rank", place.mean().item<double>(), MetricRule::Better::lower);
    result.add_number(prefix + "boxes", static_cast<double>(ranks.size()));
    result.outcomes.push_back(make_outcomes(prefix + "mean_rank", {.part = place, .sample = of}));
  }

  static void rank_phrases(const BoxChoices& choices, const TowerFeatures& features, const Embedder& embedder,
                           std::vector<std::int64_t>& ranks) {
    const TowerFeatures texts = embed_texts(embedder, choices.texts);
    TowerFeatures boxes;
    boxes.global = embed_boxes(features.dense, choices, embedder.grid());
    check_patch_width("fgovd", boxes.global.size(1), texts.global.size(1));
    const at::Tensor scores = embedder.similarity(boxes, texts);  // [boxes, texts]
    std::int64_t text = 0;
    for (std::size_t i = 0; i < choices.options.size(); ++i) {
      const at::Tensor own = scores[static_cast<std::int64_t>(i)].narrow(0, text, choices.options[i]);
      ranks.push_back(own.slice(0, 1).lt(own[0]).logical_not().sum().item<std::int64_t>());  // a NaN or a tie counts as wrong
      text += choices.options[i];
    }
  }
};

}  // namespace

void add_fgovd(TaskRegistry& list) {
  add_task<FgOvdTask>(
      list, "fgovd", "choosing the phrase of a box among its hard negatives (FG-OVD)",
      "accuracy: the share of boxes that are nearer to their phrase than to each of its hard negatives. mean_rank: the mean rank of "
      "the phrase among them, 1 at best. With several data sets, the names of the numbers begin with the set's name.");
}

}  // namespace tessera
