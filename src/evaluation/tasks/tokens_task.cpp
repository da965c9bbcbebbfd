#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/metrics/localization.h"
#include "src/evaluation/tasks/data_task.h"
#include "src/evaluation/token_space.h"
#include <tessera/base/text.h>

namespace tessera {
namespace {

struct TokenImageSettings {
  TaskData data;
  std::int64_t samples = 6;
  std::int64_t per_sample = 20;
  std::int64_t maps = 3;
  std::vector<std::string> words;
  VocabularySettings space;
};

template <class Visitor>
void fields(Visitor& v, TokenImageSettings& s) {
  data_fields(v, s.data);
  v("samples", s.samples, "number of images to show, spread over the data", config::at_least(1));
  v("per_sample", s.per_sample, "number of most active tokens to show for each image", config::in_range(1, 100));
  v("maps", s.maps, "number of an image's most active tokens for which to show a heat map", config::at_least(0));
  v("words", s.words, "words for which to show heat maps over every image; empty: each image's most active tokens");
  fields(v, s.space);
}

std::optional<config::Problem> validate(const TokenImageSettings& settings) { return check_templates(settings.space.templates); }

constexpr std::int64_t kCaptionTokens = 5;  // the k in the metric caption_precision@k
constexpr std::size_t kReadTokens = 10;     // maximum number of tokens that the run's log lists for an image

/// A word whose heat map is shown, and the ids of its tokens.
struct Word {
  std::string text;
  std::vector<std::int64_t> ids;
};

Reading reading_of(const std::string& key, const nlohmann::json& tokens) {
  Reading out{.of = key};
  for (std::size_t i = 0; i < std::min(tokens.size(), kReadTokens); ++i)
    out.items.emplace_back(tokens[i].at("token").get<std::string>(), tokens[i].at("weight").get<double>());
  return out;
}

/// Returns an entry of tokens.json as a sheet of the report.
nlohmann::json make_sheet(const EvaluationSample& sample, const nlohmann::json& example) {
  const Image image = to_image(sample.pixels);
  nlohmann::json out = {{"images", {report::image_part(image, sample.sample.key)}}};
  for (const auto& token : example.at("tokens")) out["cloud"].push_back({token.at("token"), token.at("weight")});
  for (const auto& map : example.at("maps"))
    out["images"].push_back(report::heat_part(image, map.at("activation").get<std::vector<float>>(), map.at("rows"), map.at("columns"),
                                              map.at("word")));
  return out;
}

/// Shows images with their most active tokens.
class TokensTask final : public DataTask<TokenImageSettings> {
 public:
  void check(const EvaluationContext& /*context*/) const override {}

  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    const bool sparse = embedder.token_space() > 0;
    Pass pass = pass_over_data(embedder, context, {.tokens = sparse});
    pass.reads_pixels = context.images;
    const TokenSpace space(embedder, context, settings_.space, "tokens");
    const std::vector<Word> words = given_words(embedder, space);
    TaskResult result;
    metrics::SparsityMeter images, texts;
    std::vector<double> in_captions;  // for each image with captions: the share of its most active tokens that occur in the captions
    auto json = nlohmann::json::array(), sheets = json;
    ExampleChooser examples(pass.total(), settings_.samples);
    pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
      const at::Tensor activations = space.activations(features);
      const at::Tensor best = metrics::best_first(activations, std::max<std::int64_t>(kCaptionTokens, settings_.per_sample));
      std::vector<std::string> captions;
      for (std::size_t i = 0; i < samples.size(); ++i) {
        const auto row = static_cast<std::int64_t>(i);
        const std::vector<std::int64_t> order = to_vector<std::int64_t>(best[row]);
        if (const auto& own = samples[i].sample.captions; !own.empty()) {
          captions.push_back(own.front());
          in_captions.push_back(share_in(own, activations[row], order, space));
        }
        if (!examples.choose(samples[i].index)) continue;
        const std::string& key = samples[i].sample.key;
        const nlohmann::json tokens = tokens_of(activations[row], order, space);
        result.readings.push_back(reading_of(key, tokens));
        if (!context.images) continue;
        auto maps = nlohmann::json::array();
        if (sparse) maps = maps_of(slice(features, {row, row + 1}), tokens, order, embedder, space, words);
        json.push_back({{"key", key}, {"tokens", tokens}, {"maps", maps}});
        sheets.push_back(make_sheet(samples[i], json.back()));
      }
      if (!sparse) return;
      images.add(features.global);
      if (!captions.empty()) texts.add(embed_texts(embedder, captions).global);
    });
    if (!in_captions.empty()) {
      const std::string name = concat("caption_precision@", kCaptionTokens);
      result.add_share(name, at::tensor(in_captions, at::kDouble).mean().item<double>());
      if (std::ssize(in_captions) == result.samples) result.outcomes.push_back(report::mean_outcomes(name, in_captions));
    }
    add_sparsity(result, images, texts);
    add_items({{"type", "overlay"},
               {"title", "Tokens"},
               {"note", "The most active tokens of each image, larger if more active, and maps of single words, scaled from the patch "
                        "where a word is least active to the one where it is most active."}},
              sheets, result);
    if (!json.empty()) write_json(context.out, "tokens.json", json);
    return result;
  }

 private:
  /// Returns the words in the settings. Throws UserError if a word has no token, or if the model cannot make heat maps.
  std::vector<Word> given_words(const Embedder& embedder, const TokenSpace& space) const {
    if (!settings_.words.empty()) require_token_space(embedder, "tokens.words");
    std::vector<Word> words;
    for (const std::string& text : settings_.words) {
      words.push_back({text, {}});
      for (const std::int64_t entry : space.entries_of(text)) words.back().ids.push_back(space.id(entry));
      if (words.back().ids.empty()) user_error("tokens.words: the vocabulary has no token of \"", text, "\"");
    }
    return words;
  }

  /// Takes the image's most active tokens (kCaptionTokens of them) and returns the share of these tokens that the image's captions
  /// contain. A token with activation 0 counts as not contained.
  static double share_in(const std::vector<std::string>& captions, const at::Tensor& activations,
                         const std::vector<std::int64_t>& order, const TokenSpace& space) {
    std::vector<std::int64_t> contained;
    for (const std::string& caption : captions) {
      const auto own = space.entries_of(caption);
      contained.insert(contained.end(), own.begin(), own.end());
    }
    const auto count = std::min<std::ptrdiff_t>(kCaptionTokens, std::ssize(order));
    const auto hits = std::count_if(order.begin(), order.begin() + count, [&](std::int64_t entry) {
      return activations[entry].item<double>() > 0 && contains(contained, entry);
    });
    return static_cast<double>(hits) / static_cast<double>(count);
  }

  /// Returns the image's most active tokens and their weights (activations), without tokens of weight 0: [{"token", "weight"}].
  nlohmann::json tokens_of(const at::Tensor& activations, const std::vector<std::int64_t>& order, const TokenSpace& space) const {
    auto out = nlohmann::json::array();
    for (const std::int64_t entry : order) {
      const double weight = activations[entry].item<double>();
      if (weight <= 0 || std::ssize(out) == settings_.per_sample) break;
      out.push_back({{"token", space.name(entry)}, {"weight", weight}});
    }
    return out;
  }

  /// Returns heat maps of `words` or, if `words` is empty, of the image's most active tokens: [{"word", "rows", "columns", "activation"}].
  /// `features` are the features of this image.
  nlohmann::json maps_of(const TowerFeatures& features, const nlohmann::json& tokens, const std::vector<std::int64_t>& order,
                         const Embedder& embedder, const TokenSpace& space, std::vector<Word> words) const {
    const config::Size grid = embedder.grid();
    for (std::int64_t i = 0; settings_.words.empty() && i < std::min(settings_.maps, std::ssize(tokens)); ++i) {
      const auto place = static_cast<std::size_t>(i);
      words.push_back({tokens[place].at("token").get<std::string>(), {space.id(order[place])}});
    }
    auto out = nlohmann::json::array();
    for (const Word& word : words) {
      const at::Tensor map = metrics::token_localization(embedder.token_activations(features, word.ids), grid).normalized;
      out.push_back({{"word", word.text}, {"rows", grid.height}, {"columns", grid.width}, {"activation", to_vector<float>(map)}});
    }
    return out;
  }
};

}  // namespace

void add_tokens(TaskRegistry& list) {
  add_task<TokensTask>(
      list, "tokens", "images with their most active vocabulary tokens (STAIR)",
      "caption_precision@k: the share of an image's k most active tokens that one of its captions contains.");
}

}  // namespace tessera
