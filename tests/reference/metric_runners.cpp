#include <nlohmann/json.hpp>

#include "src/evaluation/metrics/sparse.h"
#include "src/evaluation/metrics/captions.h"
#include "src/evaluation/metrics/probes.h"
#include "src/evaluation/metrics/pairs.h"
#include "src/evaluation/metrics/retrieval.h"
#include "src/evaluation/metrics/segmentation.h"
#include "src/evaluation/metrics/slots.h"
#include "src/evaluation/metrics/localization.h"
#include "src/evaluation/metrics/zero_shot.h"
#include "tests/reference/all_runners.h"
#include "tests/reference/whole_metrics.h"
#include <tessera/base/text.h>
#include <tessera/config/fields.h>

namespace tessera::probe {
namespace {

/// The settings of all metrics. Each metric uses some of them; read_settings() checks that a case sets no others.
struct MetricSettings {
  std::int64_t num_classes = 0;
  std::vector<std::int64_t> topk;
  bool clip_counts = false;
  std::array<std::int64_t, 2> grid{};
  std::string upsample = "bilinear";
  std::string candidates = "present";
  std::optional<std::int64_t> background_index;
  std::int64_t ignore_index = 255;
  double l2 = 0;
  double lr = 0.1;
  double weight_decay = 0;
  std::int64_t span = 8;
  std::int64_t k = 20;
  double temperature = 0.07;
  std::vector<std::string> categories;
  std::int64_t top = 0;
  std::string granularity = "slot";
  std::int64_t slots = 0;
  std::int64_t steps = 0;
  double momentum = 0.9;
};

template <class Visitor>
void fields(Visitor& v, MetricSettings& s) {
  v("num_classes", s.num_classes, "classes", config::at_least(1));
  v("topk", s.topk, "values of k", config::at_least(1));
  v("clip_counts", s.clip_counts, "a word counts at most as often as it occurs");
  v("grid", s.grid, "rows and columns of the patches", config::at_least(1));
  v("upsample", s.upsample, "of the patches' cosines", config::one_of({"bilinear", "nearest"}));
  v("candidates", s.candidates, "classes to choose from", config::one_of({"present", "all"}));
  v("background_index", s.background_index, "left out of the means", config::at_least(0));
  v("ignore_index", s.ignore_index, "pixels that do not count");
  v("l2", s.l2, "weight of the penalty", config::at_least(0));
  v("lr", s.lr, "greatest learning rate", config::above(0));
  v("weight_decay", s.weight_decay, "of AdamW", config::at_least(0));
  v("span", s.span, "first step of the search", config::at_least(1));
  v("k", s.k, "neighbors", config::at_least(1));
  v("temperature", s.temperature, "of the votes", config::above(0));
  v("categories", s.categories, "names");
  v("top", s.top, "slots to keep", config::at_least(1));
  v("granularity", s.granularity, "what a mask scales", config::one_of({"slot", "dimension"}));
  v("slots", s.slots, "slots of an embedding", config::at_least(1));
  v("steps", s.steps, "updates", config::at_least(1));
  v("momentum", s.momentum, "of SGD", config::in_half_open(0, 1));
}

/// Reads the settings of a case. Throws for keys that the metric does not have.
MetricSettings read_settings(const Run& run, const std::vector<std::string>& keys, MetricSettings defaults = {}) {
  for (const auto& [key, value] : run.settings().members()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      config::fail(value, key, concat("unknown setting", suggestion(key, keys)));
    }
  }
  return config::read<MetricSettings>(run.settings(), "", std::move(defaults));
}

at::Tensor number(double value) {
  return at::scalar_tensor(value, at::kDouble);
}
at::Tensor whole(std::int64_t value) {
  return at::scalar_tensor(value, at::kLong);
}
at::Tensor numbers(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble);
}
at::Tensor wholes(const std::vector<std::int64_t>& values) {
  return at::tensor(values, at::kLong);
}

Outputs zero_shot_classification(Run& run) {
  const MetricSettings s = read_settings(run, {"num_classes", "topk"}, {.topk = {1, 5}});
  const auto scores =
      metrics::zero_shot_classification(run.input("image_features"), run.input("labels"), run.input("prompt_features"),
                                        run.input("prompt_class"), s.num_classes, s.topk);
  return {{"class_embeddings",
           metrics::class_embeddings(run.input("prompt_features"), run.input("prompt_class"), s.num_classes)},
          {"prediction", scores.prediction},
          {"topk", numbers(scores.topk)},
          {"per_class", scores.per_class},
          {"mean_per_class", number(scores.mean_per_class)}};
}

Outputs retrieval_recall(Run& run) {
  const MetricSettings s = read_settings(run, {"topk"}, {.topk = {1, 5, 10}});
  const auto scores = metrics::retrieval_recall(run.input("image_features"), run.input("text_features"),
                                                run.input("text_image"), s.topk);
  return {{"image_to_text", numbers(scores.image_to_text)},
          {"text_to_image", numbers(scores.text_to_image)},
          {"image_to_text_rank", scores.image_to_text_rank},
          {"text_to_image_rank", scores.text_to_image_rank}};
}

Outputs k_precision(Run& run) {
  const MetricSettings s = read_settings(run, {"clip_counts"});
  const nlohmann::json& in = run.json_inputs();
  std::optional<std::vector<std::string>> lexicon;
  if (in.contains("lexicon") && !in.at("lexicon").is_null()) lexicon = in.at("lexicon").get<std::vector<std::string>>();
  const auto rows = in.at("scores").get<std::vector<std::vector<double>>>();
  const auto captions = in.at("captions").get<std::vector<std::string>>();
  std::vector<at::Tensor> scores;
  for (const std::vector<double>& row : rows) scores.push_back(numbers(row));
  const auto out = metrics::k_precision(
      scores.empty() ? at::empty({0, static_cast<std::int64_t>(captions.size())}, at::kDouble) : at::stack(scores),
      captions, in.at("caption_image").get<std::vector<std::int64_t>>(), lexicon, s.clip_counts);
  return {{"top1", wholes(out.top1)},
          {"per_image", numbers(out.per_image)},
          {"per_image_na", numbers(out.per_image_na)},
          {"k_precision", number(out.k_precision)},
          {"k_precision_na", number(out.k_precision_na)},
          {"count", numbers(out.per_image).ne(-1).sum()},
          {"count_na", numbers(out.per_image_na).ne(-1).sum()}};
}

Outputs zero_shot_segmentation(Run& run) {
  const MetricSettings s = read_settings(run, {"grid", "upsample", "candidates", "background_index", "ignore_index"});
  const auto out =
      metrics::zero_shot_segmentation(run.input("patch_features"), run.input("class_features"), run.input("target"),
                                      {s.grid, s.upsample, s.candidates, s.background_index, s.ignore_index});
  return {{"prediction", out.prediction}, {"patch_similarity", out.patch_similarity}};
}

Outputs segmentation_scores(Run& run) {
  const MetricSettings s = read_settings(run, {"num_classes", "background_index", "ignore_index"});
  const auto scores = metrics::segmentation_scores(run.input("prediction"), run.input("target"), s.num_classes,
                                                   s.background_index, s.ignore_index);
  return {{"image_iou", scores.image_iou},
          {"image_miou", number(scores.image_miou)},
          {"images", whole(scores.images)},
          {"intersection", scores.intersection},
          {"union", scores.union_},
          {"class_iou", scores.class_iou},
          {"dataset_miou", number(scores.dataset_miou)},
          {"pixel_accuracy", number(scores.pixel_accuracy)}};
}

Outputs linear_probe_lbfgs(Run& run) {
  const MetricSettings s = read_settings(run, {"num_classes", "l2"});
  const auto scores =
      metrics::linear_probe_lbfgs(run.input("train_features"), run.input("train_labels"), run.input("test_features"),
                                  run.input("test_labels"), s.num_classes, s.l2);
  return {{"objective", number(scores.objective)},
          {"train_log_loss", number(scores.train_log_loss)},
          {"test_log_loss", number(scores.test_log_loss)},
          {"train_top1", number(scores.train_top1)},
          {"test_top1", number(scores.test_top1)}};
}

Outputs linear_probe_adamw(Run& run) {
  const MetricSettings s = read_settings(run, {"lr", "weight_decay"});
  const auto out = metrics::linear_probe_adamw(run.input("features"), run.input("labels"), run.input("weight"),
                                               run.input("bias"), run.input("batches"), s.lr, s.weight_decay);
  return {{"losses", out.losses},
          {"weight_final", out.weight},
          {"bias_final", out.bias},
          {"train_top1", number(out.train_top1)}};
}

Outputs hyperparameter_sweep(Run& run) {
  const MetricSettings s = read_settings(run, {"span"});
  const auto accuracy = run.json_inputs().at("accuracy").get<std::vector<double>>();
  const auto sweep = metrics::hyperparameter_sweep(
      static_cast<std::int64_t>(accuracy.size()), run.json_inputs().at("initial").get<std::vector<std::int64_t>>(),
      [&](std::int64_t index) { return accuracy[static_cast<std::size_t>(index)]; }, s.span);
  return {{"best_index", whole(sweep.best_index)}, {"visited", wholes(sweep.visited)}};
}

Outputs knn_classification(Run& run) {
  const MetricSettings s = read_settings(run, {"num_classes", "k", "temperature"});
  const auto out =
      metrics::knn_classification(run.input("train_features"), run.input("train_labels"), run.input("test_features"),
                                  run.input("test_labels"), s.num_classes, s.k, s.temperature);
  return {{"neighbours", out.neighbors},
          {"probabilities", out.probabilities},
          {"prediction", out.prediction},
          {"top1", number(out.top1)},
          {"top5", number(out.top5)}};
}

Outputs pairwise_accuracy(Run& run) {
  const MetricSettings s = read_settings(run, {"categories"});
  const auto out = metrics::pairwise_accuracy(run.input("positive_scores"), run.input("negative_scores"),
                                              run.input("category"), static_cast<std::int64_t>(s.categories.size()));
  return {{"accuracy", number(out.accuracy)},
          {"category_accuracy", out.category_accuracy},
          {"mean_category_accuracy", number(out.mean_category_accuracy)},
          {"category_count", out.category_count}};
}

Outputs winoground(Run& run) {
  read_settings(run, {});
  const auto out = metrics::winoground(run.input("scores"));
  const auto share = [](const at::Tensor& right) { return number(right.numel() > 0 ? right.to(at::kDouble).mean().item<double>() : 0); };
  return {{"text_score", share(out.text_correct)},
          {"image_score", share(out.image_correct)},
          {"group_score", share(at::logical_and(out.text_correct, out.image_correct))},
          {"text_correct", out.text_correct},
          {"image_correct", out.image_correct}};
}

Outputs token_group_iou(Run& run) {
  read_settings(run, {});
  const auto out = metrics::token_group_iou(run.input("weights"), run.input("text_mask"), run.input("segments"));
  const auto mean = [&](std::int64_t column) { return number(metrics::mean_of_present(out.per_caption.select(1, column))); };
  return {{"assignment", out.assignment},
          {"per_caption", out.per_caption},
          {"captions", out.per_caption.select(1, 0).ge(0).sum()},
          {"iou", mean(0)},
          {"precision", mean(1)},
          {"recall", mean(2)},
          {"f1", mean(3)}};
}

Outputs interpretability_ranking(Run& run) {
  const MetricSettings s = read_settings(run, {"topk"}, {.topk = {1, 10, 50, 100}});
  const at::Tensor rank = metrics::interpretability_ranking(run.input("activations"), run.input("labels"), run.input("class_token_ids"));
  return {{"rank", rank}, {"topk", numbers(metrics::recall_at(at::where(rank.lt(0), -1, rank - 1), s.topk))}};
}

Outputs sparsity_statistics(Run& run) {
  read_settings(run, {});
  const at::Tensor encoding = run.input("encoding");
  metrics::SparsityMeter meter;
  meter.add(encoding);
  return {{"active_per_row", encoding.gt(0).sum(1)},
          {"mean_active", number(meter.mean_active())},
          {"density", number(meter.mean_active() / static_cast<double>(encoding.size(1)))},
          {"dead_columns", whole(meter.dead_columns())},
          {"expected_flops", number(meter.expected_flops())}};
}

Outputs slot_selection(Run& run) {
  const MetricSettings s = read_settings(run, {"top"});
  const at::Tensor image_slots = run.input("image_slots"), text_slots = run.input("text_slots");
  metrics::SlotMeter slots(metrics::class_slots(text_slots));
  slots.add(image_slots, run.input("labels"));
  const at::Tensor accuracy = slots.accuracy();
  const at::Tensor selected = metrics::best_slots(accuracy, s.top);
  // From here on, classifies zero-shot with the embeddings of the chosen slots.
  const std::int64_t classes = text_slots.size(0);
  const at::Tensor owner = at::arange(classes, at::kLong).repeat_interleave(text_slots.size(1));
  const at::Tensor prompts = metrics::slot_embeddings(text_slots.flatten(0, 1), selected);
  const at::Tensor scores =
      metrics::slot_embeddings(image_slots, selected).matmul(metrics::class_embeddings(prompts, owner, classes).t());
  metrics::ZeroShotMeter meter(classes, {1});
  meter.add(scores.detach(), run.input("labels"));
  return {{"slot_accuracy", accuracy},
          {"selected", selected},
          {"scores", scores},
          {"accuracy", number(meter.scores().topk[0])}};
}

/// Returns the mask and the pairs of a case.
std::pair<metrics::SlotMask, metrics::MaskPairs> mask_case(Run& run, const MetricSettings& s) {
  const at::Tensor image = run.input("image");
  const std::int64_t parts = s.granularity == "slot" ? s.slots : image.size(1);
  return {{run.parameter("theta"), run.parameter("alpha")},
          metrics::mask_pairs(image, run.input("positive"), run.input("negative"), parts)};
}

Outputs slot_mask(Run& run) {
  const auto [mask, pairs] = mask_case(run, read_settings(run, {"granularity", "slots"}));
  const auto scores = metrics::slot_mask_scores(mask, pairs);
  return {{"loss", scores.loss}, {"mask", mask.weights()}, {"logits", scores.logits}};
}

Outputs slot_mask_training(Run& run) {
  const MetricSettings s =
      read_settings(run, {"granularity", "slots", "steps", "lr", "momentum"}, {.lr = 0.02, .momentum = 0.9});
  const auto [mask, pairs] = mask_case(run, s);
  const auto out = metrics::train_slot_mask(mask, pairs, s.steps, s.lr, s.momentum);
  return {{"losses", out.losses}, {"theta", out.theta}, {"alpha", out.alpha}};
}

}  // namespace

void add_metric_runners(Runners& runners) {
  runners.add("zero_shot_classification", zero_shot_classification);
  runners.add("retrieval_recall", retrieval_recall);
  runners.add("k_precision", k_precision);
  runners.add("zero_shot_segmentation", zero_shot_segmentation);
  runners.add("segmentation_scores", segmentation_scores);
  runners.add("linear_probe_lbfgs", linear_probe_lbfgs);
  runners.add("linear_probe_adamw", linear_probe_adamw);
  runners.add("hyperparameter_sweep", hyperparameter_sweep);
  runners.add("knn_classification", knn_classification);
  runners.add("pairwise_accuracy", pairwise_accuracy);
  runners.add("winoground", winoground);
  runners.add("token_group_iou", token_group_iou);
  runners.add("interpretability_ranking", interpretability_ranking);
  runners.add("sparsity_statistics", sparsity_statistics);
  runners.add("slot_selection", slot_selection);
  runners.add("slot_mask", slot_mask);
  runners.add("slot_mask_training", slot_mask_training);
}

}  // namespace tessera::probe
