#include <algorithm>

#include <ATen/ATen.h>

#include "src/data/loading/evaluation_reader.h"
#include "src/evaluation/tasks/pass.h"
#include "src/evaluation/tasks/image_task_settings.h"
#include "src/evaluation/tasks/retrieval_sheets.h"
#include "src/evaluation/tasks/tasks.h"
#include "src/report/cards.h"

namespace tessera {
namespace {

/// The images that are nearest to one text so far, best first.
struct Nearest {
  RetrievalSheet sheet;
  std::vector<std::pair<double, std::string>> keys;  // the cosines and keys of these images
};

void offer_key(Nearest& nearest, double score, const std::string& key, std::size_t most) {
  auto& keys = nearest.keys;
  const auto place = std::upper_bound(keys.begin(), keys.end(), score,
                                      [](double value, const auto& each) { return value > each.first; });
  keys.insert(place, {score, key});
  if (keys.size() > most) keys.pop_back();
}

class QueryTask final : public EvaluationTask {
 public:
  explicit QueryTask(QuerySettings settings) : settings_(std::move(settings)) {}

  std::string rule() const override {
    return "mean_best_cosine: the cosine between each text and its nearest image, averaged over the texts.";
  }

  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    const auto source = open_source(settings_.data, context.source, "query.source");
    const TowerFeatures texts = embed_texts(embedder, settings_.texts.items);
    std::vector<Nearest> queries;
    for (const std::string& text : settings_.texts.items)
      queries.push_back({{.text_to_image = true, .query_text = text, .rank = -1}, {}});
    TaskResult result;
    result.prompts = settings_.texts.items;
    const Pass pass{.embedder = embedder,
                    .context = context,
                    .source = source,
                    .max_samples = settings_.data.max_samples,
                    .counts_equal_images = true,
                    .reads_pixels = context.images};
    pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
      const at::Tensor similarity = embedder.similarity(features, texts).to(at::kDouble).contiguous();  // [B, queries]
      for (std::size_t i = 0; i < samples.size(); ++i)
        for (std::size_t q = 0; q < queries.size(); ++q) {
          const double score = similarity.const_data_ptr<double>()[i * queries.size() + q];
          offer_key(queries[q], score, samples[i].sample.key, static_cast<std::size_t>(settings_.top));
          if (context.images) offer_image(queries[q].sheet, score, samples[i], false, settings_.top);
        }
    });
    double best = 0;
    auto sheets = nlohmann::json::array();
    for (Nearest& query : queries) {
      best += query.keys.front().first / static_cast<double>(queries.size());
      Reading reading{.of = query.sheet.query_text};
      for (const auto& [score, key] : query.keys) reading.items.emplace_back(key, score);
      result.readings.push_back(std::move(reading));
      if (context.images) sheets.push_back(make_sheet(query.sheet));
    }
    result.add_number("mean_best_cosine", best);
    if (!sheets.empty())
      result.add_card({{"type", "image"},
                       {"title", "Queries"},
                       {"note", "The images nearest to each text, with their cosines and names. The right ones are not known."},
                       {"items", sheets}});
    return result;
  }

 private:
  QuerySettings settings_;
};

}  // namespace

std::shared_ptr<EvaluationTask> make_query_task(const QuerySettings& settings) {
  return std::make_shared<QueryTask>(settings);
}

std::optional<config::Problem> validate(const QuerySettings& s) {
  if (s.texts.items.empty()) return config::Problem{"texts", "is empty: give texts to search for, such as [a dog on grass]"};
  return std::nullopt;
}

}  // namespace tessera
