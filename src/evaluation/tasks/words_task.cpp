#include <functional>

#include "src/evaluation/tasks/conditioned.h"
#include "src/evaluation/tasks/data_task.h"
#include "src/evaluation/tasks/patch_scores.h"
#include "src/evaluation/token_spans.h"
#include <tessera/objectives/objective.h>
#include <tessera/objectives/patch_weights.h>

namespace tessera {
namespace {

struct WordMapSettings {
  TaskData data;
  std::int64_t samples = 4;
  TextList texts;
  std::int64_t max_words = 24;
};

template <class Visitor>
void fields(Visitor& v, WordMapSettings& s) {
  data_fields(v, s.data);
  v("samples", s.samples, "number of images to show, spread over the data", config::at_least(1));
  v("texts", s.texts, "texts whose words are shown on every image; empty: each image's first caption");
  v("max_words", s.max_words, "number of words to show of a longer text", config::in_range(1, 200));
}

std::vector<std::string> texts_of_words(const std::vector<TextWord>& words) {
  std::vector<std::string> texts;
  for (const TextWord& word : words) texts.push_back(word.text);
  return texts;
}

/// How the maps of words are computed.
struct WordMaps {
  ViewNeeds needs, text_needs;  // the features of images and texts that `of` needs
  std::string rule;             // what the numbers are, in sentences
  /// Returns the map of each word, float [words, P]. `image` are the features of one image, whose patches form the grid.
  std::function<at::Tensor(const TowerFeatures& image, config::Size grid, const TowerFeatures& text,
                           const std::vector<TextWord>& words)>
      of;
  std::string note = {};  // for TaskResult::notes
};

TowerFeatures on_device(const TowerFeatures& features, const at::Device& device) {
  return map_tensors(features, [&](const at::Tensor& tensor) { return tensor.to(device); });
}

/// A part of an objective that compares patches with texts, and the device of the objective.
struct Comparing {
  std::shared_ptr<const PatchWeights> weights;  // null if there is none
  at::Device device = at::kCPU;
};

Comparing comparing_part(const EvaluationContext& context) {
  Comparing out;
  if (context.loss == nullptr) return out;
  const std::shared_ptr<Objective> objective = context.loss->objective();
  if (const auto parameters = objective->parameters(); !parameters.empty()) out.device = parameters.front().device();
  for (const std::shared_ptr<torch::nn::Module>& module : objective->modules(/*include_self=*/true))
    if (!out.weights) out.weights = std::dynamic_pointer_cast<const PatchWeights>(module);
  return out;
}

WordMaps maps_by_objective(const Embedder& embedder, const Comparing& part) {
  const auto of = [&embedder, weights = part.weights, device = part.device](const TowerFeatures& image, config::Size,
                                                          const TowerFeatures& text,
                                                          const std::vector<TextWord>& words) {
    if (!weights->by_token()) {
      const TowerFeatures alone = embed_texts(embedder, texts_of_words(words));
      const TowerFeatures repeated =
          map_tensors(image, [&](const at::Tensor& tensor) { return tensor.repeat_interleave(std::ssize(words), 0); });
      return weights->patch_weights(on_device(repeated, device), on_device(alone, device)).squeeze(1).to(at::kCPU, at::kFloat);
    }
    const at::Tensor by_token = weights->patch_weights(on_device(image, device), on_device(text, device))[0].to(at::kCPU, at::kFloat);
    std::vector<at::Tensor> maps;
    for (const TextWord& word : words)
      maps.push_back(by_token.index_select(0, at::tensor(word.tokens, at::kLong)).mean(0));
    return at::stack(maps);
  };
  const bool by_token = part.weights->by_token();
  return {.needs = {.tokens = true},
          .text_needs = {.tokens = by_token, .input_ids = true},
          .rule = concat(part.weights->describe_weights(), by_token ? " The tokens of a word are averaged." : ""),
          .of = of};
}

/// Compares patches with each word as a text of its own.
WordMaps maps_by_scores(const Embedder& embedder,
                        const std::function<PatchScores(const TowerFeatures& names)>& scores_of, const ViewNeeds& needs,
                        const std::string& rule) {
  return {.needs = needs,
          .text_needs = {.input_ids = true},
          .rule = rule,
          .of = [&embedder, scores_of](const TowerFeatures& image, config::Size grid, const TowerFeatures&,
                                       const std::vector<TextWord>& words) {
            const TowerFeatures names = embed_texts(embedder, texts_of_words(words));
            return scores_of(names).of(image, grid)[0].t().to(at::kFloat).contiguous();
          }};
}

/// Returns the grid of the patches of one image, and removes padding patches from its features.
config::Size grid_of(const Embedder& embedder, TowerFeatures& image) {
  if (!image.grids.defined()) return embedder.grid();
  const config::Size grid = {image.grids[0][0].item<std::int64_t>(), image.grids[0][1].item<std::int64_t>()};
  for (at::Tensor* patches : {&image.tokens, &image.dense})
    if (patches->defined()) *patches = patches->narrow(1, 0, grid.height * grid.width);
  return grid;
}

nlohmann::json make_json(const report::MapExample& example) {
  auto maps = nlohmann::json::array();
  for (const report::MapExample::Map& map : example.maps)
    maps.push_back({{"word", map.text}, {"rows", example.rows}, {"columns", example.columns}, {"weights", map.patches}});
  return {{"key", example.name}, {"text", example.text}, {"maps", maps}};
}

/// Shows where in images the single words of texts are found.
class WordsTask final : public DataTask<WordMapSettings> {
 public:
  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    if (embedder.tokenizer() == nullptr) user_error("words: the model has no tokenizer, so its texts have no words");
    const Comparing part = comparing_part(context);
    std::optional<ConditionedEmbedder> pooled;
    if (!part.weights && context.pool) pooled.emplace(conditioned(embedder, context, "words", "attention", "cosine"));
    const WordMaps maps = part.weights ? maps_by_objective(embedder, part) : pooled     ? maps_by_pool(*pooled) : maps_by_cosine(embedder);
    const Pass pass = pass_over_data(pooled ? *pooled : embedder, context, maps.needs);
    TaskResult result;
    result.prompts = settings_.texts.items;
    if (!maps.note.empty()) result.notes.push_back(maps.note);
    auto json = nlohmann::json::array(), sheets = json;
    ExampleChooser examples(pass.total(), settings_.samples);
    pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
      for (std::size_t i = 0; i < samples.size(); ++i) {
        if (!examples.choose(samples[i].index)) continue;
        const auto row = static_cast<std::int64_t>(i);
        for (const std::string& text : texts_for(samples[i].sample)) {
          const report::MapExample shown = example(embedder, maps, slice(features, {row, row + 1}), samples[i], text);
          json.push_back(make_json(shown));
          if (context.images) sheets.push_back(report::make_sheet(shown));
        }
      }
    });
    add_items({{"type", "overlay"},
               {"title", "Words"},
               {"note", maps.rule + " The numbers are in words.json. The colors of each map reach from its smallest to its greatest "
                                    "value."},
               {"columns", "five"}},
              sheets, result);
    write_json(context.out, "words.json", json);
    return result;
  }

 private:
  Required required() const override { return settings_.texts.items.empty() ? captioned() : Required{}; }

  std::vector<std::string> texts_for(const Sample& sample) const {
    return settings_.texts.items.empty() ? std::vector{sample.captions.front()} : settings_.texts.items;
  }

  static WordMaps maps_by_pool(const ConditionedEmbedder& model) {
    return maps_by_scores(
        model, [&model](const TowerFeatures& names) { return conditioned_patches(model, names, /*attention=*/true); },
        {.tokens = true},
        "The attention of the word alone, as a text of its own, to each patch in the objective's pool.");
  }

  static WordMaps maps_by_cosine(const Embedder& embedder) {
    WordMaps maps = maps_by_scores(
        embedder, [](const TowerFeatures& names) { return cosines_of_patches(names.global, LastBlock::plain); },
        {.dense = true}, "The cosine of each patch with the word alone, as a text of its own.");
    maps.note =
        "the model comes without an objective on words and patches (sparc, filip, pacl, gloria, flair): the maps compare patches with each "
        "word as a text of its own, which shows little if only whole images were trained; grad_cam shows where an image's similarity with "
        "a whole text comes from";
    return maps;
  }

  report::MapExample example(const Embedder& embedder, const WordMaps& maps, TowerFeatures image,
                     const EvaluationSample& sample, const std::string& text) const {
    const TowerFeatures features = embed_texts(embedder, {text}, maps.text_needs);
    std::vector<TextWord> words = words_of(text, tokens_of(embedder, features.input, 0), /*cut=*/true);
    if (std::ssize(words) > settings_.max_words) words.resize(static_cast<std::size_t>(settings_.max_words));
    const config::Size grid = grid_of(embedder, image);
    report::MapExample out{.image = to_image(sample.pixels),
                   .rows = grid.height,
                   .columns = grid.width,
                   .maps = {},
                   .name = sample.sample.key,
                   .text = text};
    if (words.empty()) return out;
    const at::Tensor weights = maps.of(image, grid, features, words);
    check_patch_grid("words", weights, grid, "");
    for (std::size_t w = 0; w < words.size(); ++w)
      out.maps.push_back({words[w].text, std::nullopt, to_vector<float>(weights[static_cast<std::int64_t>(w)])});
    return out;
  }
};

}  // namespace

void add_words(TaskRegistry& list) {
  add_task<WordsTask>(
      list, "words", "where in images the single words of a text are found (SPARC, FILIP, PACL)",
      "Nothing is measured: heat maps show where in an image each word of a text is found.");
}

}  // namespace tessera
