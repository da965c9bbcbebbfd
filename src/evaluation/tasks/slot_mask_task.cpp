#include <ATen/ATen.h>

#include "src/data/loading/evaluation_reader.h"
#include "src/evaluation/metrics/slots.h"
#include "src/evaluation/tasks/check_samples.h"
#include "src/evaluation/tasks/negative_pairs.h"
#include "src/evaluation/tasks/outcomes.h"
#include "src/evaluation/tasks/tasks.h"
#include <tessera/base/text.h>
#include <tessera/io/safetensors.h>

namespace tessera {
namespace {

/// Returns the number of parts of an embedding; a mask has one weight for each part. The parts are the embedding's M dimensions or its
/// slots. For the control experiment on embeddings without slots, the settings can give the number of parts.
std::int64_t parts_of(const SlotMaskSettings& settings, const TowerFeatures& features) {
  const std::int64_t width = features.global.size(1);
  if (settings.granularity == "dimension") return width;
  if (settings.slots) {
    if (width % *settings.slots != 0)
      user_error("slot_mask.slots: embeddings of ", width, " dimensions cannot be split into ", *settings.slots,
                 " equal parts");
    return *settings.slots;
  }
  // Computes the embedding's number of slots from the widths, because `features.slots` holds all slots of the model even if the evaluation
  // keeps only some slots.
  if (!features.slots.defined() || width % features.slots.size(2) != 0 || width == features.slots.size(2))
    user_error(
        "slot_mask: this model's embedding does not consist of slots: set slots to a number of equal parts, or granularity "
        "to dimension");
  return width / features.slots.size(2);
}

class SlotMaskTask final : public EvaluationTask {
 public:
  explicit SlotMaskTask(SlotMaskSettings settings) : settings_(std::move(settings)) {}

  std::string rule() const override {
    return "accuracy: the share of pairs in which the image is nearer to its right caption than to the wrong one, with the trained mask "
           "over slots, and (before) without it.";
  }

  void check(const EvaluationContext& context) const override {
    check_train_and_test("slot_mask", settings_, context, with_negatives());
  }

  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    const auto train = open_samples(settings_.train, context.train_source, "slot_mask.train");
    const auto test = open_samples(settings_.source, context.source, "slot_mask.source");
    TaskResult uncounted, result;
    std::vector<std::int64_t> train_image, test_image;
    const metrics::MaskPairs train_pairs =
        pairs_of(embedder, context, train, settings_.max_train_samples, uncounted, train_image);
    const metrics::MaskPairs test_pairs = pairs_of(embedder, context, test, settings_.max_samples, result, test_image);
    result.data = concat(test->describe(), " (trained on ", with_thousands(train_pairs.squares.size(0)), " pairs of ",
                         train->describe(), ")");

    const auto start = metrics::SlotMask::start(train_pairs.squares.size(1));
    const auto trained =
        metrics::train_slot_mask(start, train_pairs, settings_.steps, settings_.lr, settings_.momentum);
    const at::Tensor weights = trained.best.weights();
    const at::Tensor after = right(trained.best, test_pairs), before = right(start, test_pairs);
    const at::Tensor sample = at::tensor(test_image, at::kLong);
    result.outcomes = {make_outcomes("accuracy", {.part = after, .sample = sample}),
                       make_outcomes("accuracy_before", {.part = before, .sample = sample})};
    result.add_share("accuracy", after.mean().item<double>());
    result.add_share("accuracy_before", before.mean().item<double>(), MetricRule::Better::neither);
    result.add_share("train_accuracy", right(trained.best, train_pairs).mean().item<double>(), MetricRule::Better::neither);
    result.add_share("train_accuracy_before", right(start, train_pairs).mean().item<double>(), MetricRule::Better::neither);
    result.add_number("loss_first", trained.losses[0].item<double>(), MetricRule::Better::lower);
    result.add_number("loss_last", trained.losses[-1].item<double>(), MetricRule::Better::lower);
    result.add_number("parts", static_cast<double>(weights.size(0)));
    result.add_number("mean_weight", weights.mean().item<double>());
    if (!context.out.empty())
      io::save_safetensors(context.out + "/slot_mask.safetensors",
                           {{"mask", weights}, {"theta", trained.best.theta}, {"alpha", trained.best.alpha}},
                           {{"granularity", settings_.granularity}});
    return result;
  }

 private:
  /// For each pair of captions, returns the sums needed for a mask's score. Sets `image` to the index of each pair's image in the pass.
  metrics::MaskPairs pairs_of(const Embedder& embedder, const EvaluationContext& context,
                              const std::shared_ptr<const Source>& source, std::int64_t max_samples,
                              TaskResult& result, std::vector<std::int64_t>& image) const {
    const bool by_slot = settings_.granularity == "slot" && !settings_.slots;
    std::vector<metrics::MaskPairs> batches;
    const Pass pass{.embedder = embedder,
                    .context = context,
                    .source = source,
                    .max_samples = max_samples,
                    .required = with_negatives(),
                    .needs = {.slots = by_slot}};
    ImageNumbers images(*source);
    pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
      const NegativePairs pairs(samples);
      for (const std::int64_t row : pairs.image) image.push_back(images.of(samples[static_cast<std::size_t>(row)]));
      result.texts += std::ssize(pairs.texts);
      const at::Tensor texts = embed_texts(embedder, pairs.texts).global;
      const auto rows = [](const at::Tensor& embeddings, const std::vector<std::int64_t>& chosen) {
        return embeddings.index_select(0, at::tensor(chosen, at::kLong));
      };
      batches.push_back(metrics::mask_pairs(rows(features.global, pairs.image), rows(texts, pairs.positive),
                                            rows(texts, pairs.negative), parts_of(settings_, features)));
    });
    result.samples = images.count();
    const auto all = [&](at::Tensor metrics::MaskPairs::*member) {
      std::vector<at::Tensor> tensors;
      for (const metrics::MaskPairs& batch : batches) tensors.push_back(batch.*member);
      return at::cat(tensors);
    };
    return {all(&metrics::MaskPairs::positive), all(&metrics::MaskPairs::negative), all(&metrics::MaskPairs::squares)};
  }

  /// Returns 1 for each pair whose right caption has the higher score, and 0 for the others: double [pairs].
  static at::Tensor right(const metrics::SlotMask& mask, const metrics::MaskPairs& pairs) {
    const at::Tensor logits = metrics::slot_mask_scores(mask, pairs).logits;
    return logits.select(1, 0).gt(logits.select(1, 1)).to(at::kDouble);
  }

  SlotMaskSettings settings_;
};

}  // namespace

std::shared_ptr<EvaluationTask> make_slot_mask_task(const SlotMaskSettings& settings) {
  return std::make_shared<SlotMaskTask>(settings);
}

}  // namespace tessera
