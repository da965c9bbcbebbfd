#include "src/evaluation/metrics/captions.h"
#include "src/evaluation/tasks/caption_decoding.h"
#include "src/evaluation/tasks/data_task.h"

namespace tessera {
namespace {

struct CaptionsSettings {
  TaskData data;
  std::int64_t samples = 12;
};

template <class Visitor>
void fields(Visitor& v, CaptionsSettings& s) {
  data_fields(v, s.data);
  equal_images_field(v, s.data);
  v("samples", s.samples, "number of images to show with their captions, spread over the data", config::at_least(0));
}

/// Decodes token ids [B, T] to texts. The ids after the end of a text are -1.
std::vector<std::string> decoded(const at::Tensor& ids, const Tokenizer& tokenizer) {
  std::vector<std::string> out;
  for (std::int64_t i = 0; i < ids.size(0); ++i) {
    std::vector<std::int64_t> text = to_vector<std::int64_t>(ids[i]);
    std::erase(text, -1);
    out.push_back(tokenizer.decode(text));
  }
  return out;
}

/// Counts the tokens of each image's first caption, and how many of them the decoder predicts correctly.
class TokenMeter {
 public:
  TokenMeter(Captioning& captioning, const Tokenizer& tokenizer, std::int64_t begin)
      : captioning_(captioning), tokenizer_(tokenizer), begin_(begin) {}

  void add(const TowerFeatures& images, const std::vector<EvaluationSample>& samples) {
    const TowerInput input = on_device_of(captioning_, tokenizer_.encode_batch(first_captions(samples)));
    const TokenHits hits = captioning_.token_hits(images, input.ids, input.mask);
    const at::Tensor counted = hits.counted & (input.ids != begin_);  // the begin token is not counted, because every text starts with it
    right_.push_back((hits.right & counted).sum(1).to(at::kCPU, at::kDouble));
    counted_.push_back(counted.sum(1).to(at::kCPU, at::kDouble));
  }
  report::Outcomes outcomes() const { return make_outcomes("token_accuracy", {.part = at::cat(right_), .whole = at::cat(counted_)}); }

 private:
  Captioning& captioning_;
  const Tokenizer& tokenizer_;
  std::int64_t begin_;
  std::vector<at::Tensor> right_, counted_;
};

/// Scores the captions of images that the captioning objective's decoder writes.
class CaptionsTask final : public DataTask<CaptionsSettings> {
 public:
  // The decoder reads and writes texts, but the text tower does not embed any.
  bool uses_texts() const override { return false; }

  void check(const EvaluationContext& context) const override {
    make_captioning(context, "captions");
    DataTask::check(context);
  }

  std::vector<std::string> metric_names(const Embedder& /*embedder*/) const override { return {"cider_d", "token_accuracy"}; }

  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    const std::shared_ptr<Captioning> captioning = make_captioning(context, "captions");
    if (embedder.tokenizer() == nullptr) user_error("captions: the model has no tokenizer to decode captions with");
    const Tokenizer& tokenizer = *embedder.tokenizer();
    const SpecialIds special = special_ids_of(tokenizer);
    Pass pass = pass_over_data(embedder, context, {.encoder_tokens = true});
    pass.counts_equal_images = true;
    pass.reads_pixels = context.images;
    TaskResult result;
    TokenMeter tokens(*captioning, tokenizer, special.begin);
    std::vector<std::string> captions;
    std::vector<std::vector<std::string>> references;
    struct Shown {
      std::string key;
      Image image;
      std::size_t row;  // in `captions`
    };
    std::vector<Shown> shown;
    ExampleChooser examples(pass.total(), settings_.samples);
    pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
      const TowerFeatures images = on_device_of(*captioning, features);
      tokens.add(images, samples);
      const auto written = decoded(captioning->write(images, special.ends).to(at::kCPU), tokenizer);
      for (std::size_t i = 0; i < samples.size(); ++i) {
        if (examples.choose(samples[i].index))
          shown.push_back({samples[i].sample.key, context.images ? to_image(samples[i].pixels) : Image(), captions.size()});
        captions.push_back(written[i]);
        result.texts += std::ssize(samples[i].sample.captions);
        references.push_back(samples[i].sample.captions);
      }
    });
    const metrics::CiderScores scores = metrics::cider_d(captions, references);
    result.add_number("cider_d", scores.mean, MetricRule::Better::higher);
    result.outcomes.push_back(report::mean_outcomes("cider_d", scores.per_image));
    result.outcomes.push_back(tokens.outcomes());
    result.add_share("token_accuracy", report::value_of(result.outcomes.back()));
    auto sheets = nlohmann::json::array();
    for (const auto& [key, image, row] : shown) {
      const std::string score = fixed(scores.per_image[row], 2);
      result.readings.push_back({key, concat(captions[row], " (", score, ")")});
      if (!context.images) continue;
      nlohmann::json& sheet = sheets.emplace_back(
          nlohmann::json{{"images", {report::image_part(image, key)}}, {"quote", captions[row]}, {"score", score}});
      for (const std::string& text : references[row]) sheet["list"].push_back({{"text", text}, {"right", true}});
    }
    add_items({{"type", "image"},
               {"title", "Captions"},
               {"note", "The decoder's captions for images spread over the data, their CIDEr-D, and the images' own captions."}},
              sheets, result);
    return result;
  }

 private:
  Required required() const override { return captioned(); }
};

}  // namespace

void add_captions(TaskRegistry& list) {
  add_task<CaptionsTask>(
      list, "captions", "captions that the captioning objective's decoder writes (CIDEr-D), and the decoder's token accuracy",
      "cider_d: how well the decoder's caption agrees in words and their order with the image's own captions; words that occur with "
      "few images weigh more (CIDEr-D, 0 to 10). token_accuracy: the share of the tokens of the first caption that the decoder "
      "predicts as the most likely, given those before them.");
}

}  // namespace tessera
