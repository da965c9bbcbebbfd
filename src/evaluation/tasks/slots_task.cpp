#include "src/evaluation/embedder_views.h"
#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/tasks/data_task.h"

namespace tessera {
namespace {

struct SlotImageSettings {
  TaskData data;
  std::int64_t samples = 8;
  std::int64_t per_sample = 4;
  std::vector<std::int64_t> slots;
};

template <class Visitor>
void fields(Visitor& v, SlotImageSettings& s) {
  data_fields(v, s.data);
  v("samples", s.samples, "number of images to show, spread over the data", config::at_least(1));
  v("per_sample", s.per_sample, "number of slots to show for each image, those with the greatest cosine between image and caption",
    config::at_least(1));
  v("slots", s.slots, "slots to show for every image; empty: the best slots of each image", config::at_least(0));
}

/// The slots and attention of both towers for the samples of a batch.
struct Attended {
  TowerFeatures images, texts;
  at::Tensor cosines;  // [B, L], cosine of each image slot with the text slot of the same index
};

/// Shows attention maps of individual slots.
class SlotsTask final : public DataTask<SlotImageSettings> {
 public:
  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    TaskResult result;
    at::Tensor cosines, image_peaks, text_peaks;  // for each slot, the sum over all samples, [L]
    Pass pass = pass_over_data(embedder, context, {.slots = true, .attention = true});
    pass.reads_pixels = context.images;
    ExampleChooser examples(pass.total(), settings_.samples);
    auto shown = nlohmann::json::array();
    pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
      const ViewNeeds text_needs{.slots = true, .attention = true, .input_ids = true};
      const Attended batch = attended(features, embed_texts(embedder, first_captions(samples), text_needs));
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
    add_items({{"type", "overlay"},
               {"title", "Slots"},
               {"note", "What single slots attend to: red patches of the image (the scale is below) and dark words of the caption; a "
                        "middle dot is a token without text. The number is the cosine between the image's slot and the caption's."},
               {"columns", "five"}},
              shown, result);
    return result;
  }

 private:
  Required required() const override { return captioned(); }

  static Attended attended(const TowerFeatures& images, const TowerFeatures& texts) {
    if (!images.slots.defined() || !texts.slots.defined() || !images.attention.defined() || !texts.attention.defined())
      user_error(
          "slots: this model's read-outs output no slots with attention: take a model whose towers both read out by "
          "slots, as sparo does");
    check_same_slots("slots", images.slots, texts.slots);
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
    const std::vector<std::string> texts = tokens_of(embedder, batch.texts.input, row);
    for (const std::int64_t slot : shown_slots(batch.cosines[row], context)) {
      const auto weights = to_vector<float>(batch.texts.attention[row][slot].narrow(0, 0, std::ssize(texts)));
      nlohmann::json part = report::heat_part(image, to_vector<float>(batch.images.attention[row][slot]), grid.height, grid.width,
                                              concat("slot ", slot, " \u00b7 ", fixed(batch.cosines[row][slot].item<double>(), 2)));
      for (std::size_t t = 0; t < texts.size(); ++t) part["tokens"].push_back({texts[t], weights[t]});
      out["images"].push_back(std::move(part));
    }
    return out;
  }
};

}  // namespace

void add_slots(TaskRegistry& list) {
  add_task<SlotsTask>(
      list, "slots", "attention maps of single slots (SPARO)",
      "mean_cosine: the mean cosine between each slot of an image and the same slot of its caption. best_slot_cosine: that of the "
      "slot where it is greatest. image_peak, text_peak: the mean of a slot's greatest attention weight in image and text (1: it "
      "attends to a single place).");
}

}  // namespace tessera
