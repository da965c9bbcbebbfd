#include "src/evaluation/tasks/data_task.h"

namespace tessera {
namespace {

struct GradCamSettings {
  TaskData data;
  std::int64_t samples = 8;
  TextList texts;
};

template <class Visitor>
void fields(Visitor& v, GradCamSettings& s) {
  data_fields(v, s.data);
  v("samples", s.samples, "number of images to show, spread over the data", config::at_least(1));
  v("texts", s.texts, "texts for which every image's map is shown; empty: each image's first caption");
}

/// Heat maps that show which parts of an image contribute to the image's similarity with a text.
class GradCamTask final : public DataTask<GradCamSettings> {
 public:
  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    const Pass pass = pass_over_data(embedder, context);
    ExampleChooser examples(pass.total(), settings_.samples);
    std::vector<EvaluationSample> chosen;
    TaskResult result;
    result.prompts = settings_.texts.items;
    pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures&) {
      for (const EvaluationSample& sample : samples)
        if (examples.choose(sample.index)) chosen.push_back(sample);
    });
    auto sheets = nlohmann::json::array();
    double cosines = 0, empty = 0, maps = 0;
    for (const EvaluationSample& sample : chosen) {
      const report::MapExample shown = example(embedder, sample);
      Reading& reading = result.readings.emplace_back(Reading{.of = shown.name});
      for (const report::MapExample::Map& map : shown.maps) {
        reading.items.emplace_back(map.text, *map.cosine);
        cosines += *map.cosine;
        empty += std::all_of(map.patches.begin(), map.patches.end(), [](float value) { return value == 0; }) ? 1 : 0;
        ++maps;
      }
      if (context.images) sheets.push_back(report::make_sheet(shown));
    }
    add_items({{"type", "overlay"},
               {"title", "Grad-CAM"},
               {"note", "Where in the image its similarity with the text comes from: strongest where its features speak most for the "
                        "text. The number after the text is the cosine. The colors of each map reach from its smallest to its greatest "
                        "value."},
               {"columns", "five"}},
              sheets, result);
    result.add_number("mean_cosine", cosines / maps);
    result.add_number("empty_maps", empty / maps);
    return result;
  }

 private:
  Required required() const override { return settings_.texts.items.empty() ? captioned() : Required{}; }

  report::MapExample example(const Embedder& embedder, const EvaluationSample& sample) const {
    const std::vector<std::string> texts =
        settings_.texts.items.empty() ? std::vector{sample.sample.captions.front()} : settings_.texts.items;
    const TowerFeatures features = embed_texts(embedder, texts);
    const at::Tensor pixels = sample.pixels.unsqueeze(0);
    const at::Tensor similarity = embedder.similarity(embedder.encode_images(pixels, {}), features);  // [1, texts]
    const at::Tensor maps = embedder.relevance(pixels.expand({std::ssize(texts), -1, -1, -1}), features);
    report::MapExample out{.image = to_image(sample.pixels),
                   .rows = maps.size(1),
                   .columns = maps.size(2),
                   .maps = {},
                   .name = sample.sample.key};
    for (std::size_t t = 0; t < texts.size(); ++t) {
      const auto row = static_cast<std::int64_t>(t);
      out.maps.push_back({texts[t], similarity[0][row].item<double>(), to_vector<float>(maps[row])});
    }
    return out;
  }
};

}  // namespace

void add_grad_cam(TaskRegistry& list) {
  add_task<GradCamTask>(
      list, "grad_cam", "where in an image its similarity with a caption comes from (Grad-CAM)",
      "mean_cosine: the mean cosine between the images shown and their texts. empty_maps: the share of maps that are 0 everywhere, "
      "because no feature speaks for the text.");
}

}  // namespace tessera
