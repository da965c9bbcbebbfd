#include <ATen/ATen.h>

#include "src/data/loading/evaluation_reader.h"
#include "src/evaluation/tasks/check_samples.h"
#include "src/evaluation/tasks/examples.h"
#include "src/evaluation/tasks/pass.h"
#include "src/evaluation/tasks/tasks.h"
#include "src/report/cards.h"

namespace tessera {
namespace {

class GradCamTask final : public EvaluationTask {
 public:
  explicit GradCamTask(GradCamSettings settings) : settings_(std::move(settings)) {}

  std::string rule() const override {
    return "mean_cosine: the mean cosine between the images shown and their texts. empty_maps: the share of maps that are 0 everywhere, "
           "because no feature speaks for the text.";
  }

  void check(const EvaluationContext& context) const override {
    const auto source = open_source(settings_.data.source, context.source, "grad_cam.source");
    if (settings_.texts.items.empty()) check_samples(*source, "source", settings_.data.max_samples, captioned());
  }

  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    const auto source = open_source(settings_.data.source, context.source, "grad_cam.source");
    const Pass pass{.embedder = embedder,
                    .context = context,
                    .source = source,
                    .max_samples = settings_.data.max_samples,
                    .required = settings_.texts.items.empty() ? captioned() : Required{}};
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
    if (!sheets.empty())
      result.add_card({{"type", "overlay"},
                       {"title", "Grad-CAM"},
                       {"note", "Where in the image its similarity with the text comes from: strongest where its features speak most for the "
                                "text. The number after the text is the cosine. The colors of each map reach from its smallest to its greatest "
                                "value."},
                       {"columns", "five"},
                       {"items", sheets}});
    result.add_number("mean_cosine", cosines / maps);
    result.add_number("empty_maps", empty / maps);
    return result;
  }

 private:
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

  GradCamSettings settings_;
};

}  // namespace

std::shared_ptr<EvaluationTask> make_grad_cam_task(const GradCamSettings& settings) {
  return std::make_shared<GradCamTask>(settings);
}

}  // namespace tessera
