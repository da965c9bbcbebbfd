#include "src/evaluation/metrics/slots.h"
#include "src/evaluation/tasks/data_task.h"
#include "src/evaluation/tasks/negative_pairs.h"
#include <tessera/io/safetensors.h>

namespace tessera {
namespace {

struct SlotMaskSettings : TrainTestData {
  std::string granularity = "slot";
  std::optional<std::int64_t> slots;
  std::int64_t steps = 100;
  double lr = 0.02;
  double momentum = 0.9;
};

template <class Visitor>
void fields(Visitor& v, SlotMaskSettings& s) {
  train_test_fields(v, s, "data set with hard negatives to train the mask on; null: the run's training data");
  v("granularity", s.granularity, "what has a weight of its own: each slot, or each dimension of the embedding",
    config::one_of({"slot", "dimension"}));
  v("slots", s.slots, "number of equal parts of the embedding to treat as slots; null: the model's own slots",
    config::at_least(1));
  v("steps", s.steps, "number of updates, each over all pairs", config::at_least(1));
  v("lr", s.lr, "learning rate of SGD", config::above(0));
  v("momentum", s.momentum, "momentum of SGD", config::in_half_open(0, 1));
}

/// Returns the number of parts of an embedding; a mask has one weight for each part. The parts are the embedding's M dimensions or its
/// slots. For the control experiment on embeddings without slots, the settings can give the number of parts.
std::int64_t parts_of(const SlotMaskSettings& settings, const TowerFeatures& features) {
  const std::int64_t width = features.global.size(1);
  if (settings.granularity == "dimension") return width;
  if (settings.slots) {
    if (width % *settings.slots != 0)
      user_error("slot_mask.slots: embeddings of ", width, " dimensions cannot be split into ", *settings.slots, " equal parts");
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

/// Learns a mask over the slots of image embeddings (Vani et al. 2024, 5.2) from hard negatives; the model is frozen.
class SlotMaskTask final : public TrainTestTask<SlotMaskSettings> {
 public:
  bool uses_texts() const override { return true; }

  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    const ViewNeeds needs{.slots = settings_.granularity == "slot" && !settings_.slots};
    const Pass train = train_pass(embedder, context, needs), test = test_pass(embedder, context, needs);
    TaskResult uncounted, result;
    const metrics::MaskPairs train_pairs = pairs_of(train, uncounted).first;
    const auto [test_pairs, sample] = pairs_of(test, result);
    result.data = concat(test.source->describe(), " (trained on ", with_thousands(train_pairs.squares.size(0)), " pairs of ",
                         train.source->describe(), ")");

    const auto start = metrics::SlotMask::start(train_pairs.squares.size(1));
    const auto trained = metrics::train_slot_mask(start, train_pairs, settings_.steps, settings_.lr, settings_.momentum);
    const at::Tensor weights = trained.best.weights();
    const at::Tensor after = right(trained.best, test_pairs), before = right(start, test_pairs);
    add_share("accuracy", after.mean().item<double>(), {.part = after, .sample = sample}, result);
    add_share("accuracy_before", before.mean().item<double>(), {.part = before, .sample = sample}, result, MetricRule::Better::neither);
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
  Required required() const override { return with_negatives(); }

  /// Returns the sums that a mask's score needs, for each pair of captions, and the index of each pair's image in the pass, int64 [pairs].
  std::pair<metrics::MaskPairs, at::Tensor> pairs_of(const Pass& pass, TaskResult& result) const {
    std::vector<metrics::MaskPairs> batches;
    const auto add = [&](const NegativePairs& pairs, const TowerFeatures& images, const TowerFeatures& texts) {
      const auto rows = [](const at::Tensor& embeddings, const std::vector<std::int64_t>& chosen) {
        return embeddings.index_select(0, at::tensor(chosen, at::kLong));
      };
      batches.push_back(metrics::mask_pairs(rows(images.global, pairs.image), rows(texts.global, pairs.positive),
                                            rows(texts.global, pairs.negative), parts_of(settings_, images)));
    };
    const at::Tensor image = run_over_pairs(pass, result, add);
    const auto all = [&](at::Tensor metrics::MaskPairs::*member) {
      std::vector<at::Tensor> tensors;
      for (const metrics::MaskPairs& batch : batches) tensors.push_back(batch.*member);
      return at::cat(tensors);
    };
    return {{all(&metrics::MaskPairs::positive), all(&metrics::MaskPairs::negative), all(&metrics::MaskPairs::squares)}, image};
  }

  /// Returns 1 for each pair whose right caption has the higher score, and 0 for the others: double [pairs].
  static at::Tensor right(const metrics::SlotMask& mask, const metrics::MaskPairs& pairs) {
    const at::Tensor logits = metrics::slot_mask_scores(mask, pairs).logits;
    return logits.select(1, 0).gt(logits.select(1, 1)).to(at::kDouble);
  }
};

}  // namespace

void add_slot_mask(TaskRegistry& list) {
  add_task<SlotMaskTask>(
      list, "slot_mask", "accuracy on hard negatives before and after training a mask over slots (SPARO)",
      "accuracy: the share of pairs in which the image is nearer to its right caption than to the wrong one, with the trained mask "
      "over slots, and (before) without it.");
}

}  // namespace tessera
