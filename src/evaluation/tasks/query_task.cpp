#include "src/evaluation/tasks/data_task.h"
#include "src/evaluation/tasks/retrieval_sheets.h"

namespace tessera {
namespace {

struct QuerySettings {
  TaskData data;
  TextList texts;
  std::int64_t top = 6;
};

template <class Visitor>
void fields(Visitor& v, QuerySettings& s) {
  data_fields(v, s.data);
  equal_images_field(v, s.data);
  v("texts", s.texts, "texts to search for, as with `evaluate --query`; they are embedded without a template");
  v("top", s.top, "number of nearest images to show for each text", config::in_range(1, 100));
}

std::optional<config::Problem> validate(const QuerySettings& s) {
  if (s.texts.items.empty()) return config::Problem{"texts", "is empty: give texts to search for, such as [a dog on grass]"};
  return std::nullopt;
}

/// Shows the images nearest to given texts.
class QueryTask final : public DataTask<QuerySettings> {
 public:
  void check(const EvaluationContext& /*context*/) const override {}

  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    Pass pass = pass_over_data(embedder, context);
    pass.counts_equal_images = true;
    pass.reads_pixels = context.images;
    const TowerFeatures texts = embed_texts(embedder, settings_.texts.items);
    std::vector<RetrievalSheet> queries;
    for (const std::string& text : settings_.texts.items)
      queries.push_back({.text_to_image = true, .query_text = text, .rank = -1});
    TaskResult result;
    result.prompts = settings_.texts.items;
    pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
      const at::Tensor similarity = embedder.similarity(features, texts).to(at::kDouble).contiguous();  // [B, queries]
      for (std::size_t i = 0; i < samples.size(); ++i)
        for (std::size_t q = 0; q < queries.size(); ++q) {
          const double score = similarity.const_data_ptr<double>()[i * queries.size() + q];
          offer(queries[q].items, score, settings_.top, [&] {
            return RetrievalSheet::Item{context.images ? to_image(samples[i].pixels) : Image(), samples[i].sample.key};
          });
        }
    });
    double best = 0;
    auto sheets = nlohmann::json::array();
    for (const RetrievalSheet& query : queries) {
      best += query.items.front().score / static_cast<double>(queries.size());
      Reading& reading = result.readings.emplace_back(Reading{.of = query.query_text});
      for (const RetrievalSheet::Item& item : query.items) reading.items.emplace_back(item.text, item.score);
      if (context.images) sheets.push_back(make_sheet(query));
    }
    result.add_number("mean_best_cosine", best);
    add_items({{"type", "image"},
               {"title", "Queries"},
               {"note", "The images nearest to each text, with their cosines and names. The right ones are not known."}},
              sheets, result);
    return result;
  }
};

}  // namespace

void add_query(TaskRegistry& list) {
  add_task<QueryTask>(
      list, "query", "the images that are nearest to texts",
      "mean_best_cosine: the cosine between each text and its nearest image, averaged over the texts.");
}

}  // namespace tessera
