#include "src/evaluation/tasks/data_task.h"
#include "src/evaluation/word_maps.h"

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
    const WordMaps maps(embedder, context);
    const Pass pass = pass_over_data(maps.embedder(), context, maps.needs());
    TaskResult result;
    result.prompts = settings_.texts.items;
    if (!maps.note().empty()) result.notes.push_back(maps.note());
    auto json = nlohmann::json::array(), sheets = json;
    ExampleChooser examples(pass.total(), settings_.samples);
    pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
      for (std::size_t i = 0; i < samples.size(); ++i) {
        if (!examples.choose(samples[i].index)) continue;
        const auto row = static_cast<std::int64_t>(i);
        for (const std::string& text : texts_for(samples[i].sample)) {
          const report::MapExample shown = example(maps, slice(features, {row, row + 1}), samples[i], text);
          json.push_back(make_json(shown));
          if (context.images) sheets.push_back(report::make_sheet(shown));
        }
      }
    });
    add_items({{"type", "overlay"},
               {"title", "Words"},
               {"note", maps.rule() + " The numbers are in words.json. The colors of each map reach from its smallest to its greatest "
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

  report::MapExample example(const WordMaps& maps, TowerFeatures image, const EvaluationSample& sample, const std::string& text) const {
    const ImageWords words = maps.of(std::move(image), text, settings_.max_words);
    report::MapExample out{.image = to_image(sample.pixels),
                           .rows = words.grid.height,
                           .columns = words.grid.width,
                           .maps = {},
                           .name = sample.sample.key,
                           .text = text};
    for (const WordMap& map : words.maps) out.maps.push_back({map.word.text, std::nullopt, map.patches});
    return out;
  }
};

}  // namespace

void add_words(TaskRegistry& list) {
  add_task<WordsTask>(
      list, "words", "where in images the single words of a text are found (SPARC, FILIP, PACL, GLoRIA, FLAIR, SPARO)",
      "Nothing is measured: heat maps show where in an image each word of a text is found.");
}

}  // namespace tessera
