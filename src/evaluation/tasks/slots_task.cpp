#include <ATen/ATen.h>

#include "src/data/loading/evaluation_reader.h"
#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/tasks/check_samples.h"
#include "src/evaluation/tasks/examples.h"
#include "src/evaluation/tasks/pass.h"
#include "src/evaluation/tasks/tasks.h"
#include "src/report/cards.h"
#include <tessera/base/text.h>

namespace tessera {
namespace {

/// The slots and attention of both towers for the samples of a batch.
struct Attended {
  TowerFeatures images, texts;
  at::Tensor cosines;  // [B, L], cosine of each image slot with the text slot of the same index
};

class SlotsTask final : public EvaluationTask {
 public:
  explicit SlotsTask(SlotImageSettings settings) : settings_(std::move(settings)) {}

  std::string rule() const override {
    return "mean_cosine: the mean cosine between each slot of an image and the same slot of its caption. best_slot_cosine: that of the "
           "slot where it is greatest. image_peak, text_peak: the mean of a slot's greatest attention weight in image and text (1: it "
           "attends to a single place).";
  }

  void check(const EvaluationContext& context) const override {
    const auto source = open_source(settings_.data.source, context.source, "slots.source");
    check_samples(*source, "source", settings_.data.max_samples, captioned());
  }

  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    const auto source = open_source(settings_.data.source, context.source, "slots.source");
    const ViewNeeds needs{.slots = true, .attention = true};
    TaskResult result;
    at::Tensor cosines, image_peaks, text_peaks;  // for each slot, the sum over all samples, [L]
    const Pass pass{.embedder = embedder,
                    .context = context,
                    .source = source,
                    .max_samples = settings_.data.max_samples,
                    .required = captioned(),
                    .needs = needs};
    ExampleChooser examples(pass.total(), settings_.samples);
    auto shown = nlohmann::json::array();
    pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
      std::vector<std::string> captions;
      for (const EvaluationSample& sample : samples) captions.push_back(sample.sample.captions.front());
      ViewNeeds text_needs = needs;
      text_needs.input_ids = true;
      const Attended batch = attended(features, embed_texts(embedder, captions, text_needs));
      const auto add = [](at::Tensor& sum, const at::Tensor& rows) {
        sum = sum.defined() ? sum + rows.sum(0) : rows.sum(0);
      };
      add(cosines, batch.cosines);
      add(image_peaks, batch.images.attention.to(at::kDouble).amax(2));
      add(text_peaks, batch.texts.attention.to(at::kDouble).amax(2));
      for (std::size_t i = 0; context.images && i < samples.size(); ++i)
        if (examples.choose(samples[i].index))
          shown.push_back(sheet(samples[i], static_cast<std::int64_t>(i), batch, embedder, context));
    });
    const auto mean = [&](const at::Tensor& sum) {
      return sum.mean().item<double>() / static_cast<double>(result.samples);
    };
    result.add_number("mean_cosine", mean(cosines));
    result.add_number("best_slot_cosine", cosines.max().item<double>() / static_cast<double>(result.samples));
    result.add_number("image_peak", mean(image_peaks));
    result.add_number("text_peak", mean(text_peaks));
    if (!shown.empty())
      result.add_card({{"type", "overlay"},
                       {"title", "Slots"},
                       {"note", "What single slots attend to: red patches of the image (the scale is below) and dark words of the caption; a "
                                "middle dot is a token without text. The number is the cosine between the image's slot and the caption's."},
                       {"columns", "five"},
                       {"items", shown}});
    return result;
  }

 private:
  static Attended attended(const TowerFeatures& images, const TowerFeatures& texts) {
    if (!images.slots.defined() || !texts.slots.defined() || !images.attention.defined() || !texts.attention.defined())
      user_error(
          "slots: this model's read-outs output no slots with attention: take a model whose towers both read out by "
          "slots, as sparo does");
    if (images.slots.sizes() != texts.slots.sizes())
      user_error("slots: this model's towers output different slots, ", images.slots.size(1), " of width ",
                 images.slots.size(2), " for images and ", texts.slots.size(1), " of width ", texts.slots.size(2),
                 " for texts");
    return {images, texts, (metrics::unit_rows(images.slots) * metrics::unit_rows(texts.slots)).sum(2)};
  }

  /// Returns the slots to show for a sample, in order.
  std::vector<std::int64_t> shown_slots(const at::Tensor& cosines, const EvaluationContext& context) const {
    const std::int64_t count = cosines.size(0);
    for (const std::int64_t slot : settings_.slots)
      if (slot >= count) user_error("slots.slots: slot ", slot, ": this model's slots are 0 to ", count - 1);
    if (!settings_.slots.empty()) return settings_.slots;
    at::Tensor candidates = at::arange(count, at::kLong);
    if (!context.slots.empty()) candidates = at::tensor(context.slots, at::kLong);
    const at::Tensor best = metrics::best_first(cosines.index_select(0, candidates), settings_.per_sample);
    std::vector<std::int64_t> out;
    for (std::int64_t i = 0; i < best.size(0); ++i) out.push_back(candidates[best[i]].item<std::int64_t>());
    return out;
  }

  nlohmann::json sheet(const EvaluationSample& sample, std::int64_t row, const Attended& batch, const Embedder& embedder,
                       const EvaluationContext& context) const {
    const config::Size grid = embedder.grid();
    const Image image = to_image(sample.pixels);
    nlohmann::json out = {{"images", {report::image_part(image, sample.sample.key)}}};
    const at::Tensor ids = batch.texts.input.ids[row], mask = batch.texts.input.mask;
    const std::int64_t tokens = mask.defined() ? mask[row].sum().item<std::int64_t>() : ids.size(0);
    const std::vector<std::string> texts = embedder.token_texts(to_vector<std::int64_t>(ids.narrow(0, 0, tokens)));
    for (const std::int64_t slot : shown_slots(batch.cosines[row], context)) {
      const auto weights = to_vector<float>(batch.texts.attention[row][slot].narrow(0, 0, tokens));
      nlohmann::json part = report::heat_part(image, to_vector<float>(batch.images.attention[row][slot]), grid.height, grid.width,
                                              concat("slot ", slot, " \u00b7 ", fixed(batch.cosines[row][slot].item<double>(), 2)));
      for (std::size_t t = 0; t < texts.size(); ++t) part["tokens"].push_back({texts[t], weights[t]});
      out["images"].push_back(std::move(part));
    }
    return out;
  }

  SlotImageSettings settings_;
};

}  // namespace

std::shared_ptr<EvaluationTask> make_slots_task(const SlotImageSettings& settings) {
  return std::make_shared<SlotsTask>(settings);
}

}  // namespace tessera
