#include "src/evaluation/encode.h"
#include "src/evaluation/tasks/tasks.h"
#include <tessera/base/text.h>
#include <tessera/evaluation/metrics/retrieval.h>

namespace tessera {
namespace {

constexpr std::int64_t kSheets = 6;  // each way
constexpr std::int64_t kItems = 5;

/// Captions with the image (row of the features) that each belongs to.
struct Captions {
  std::vector<std::string> texts;
  std::vector<std::int64_t> owner;
  std::vector<std::vector<std::string>> by_image;
};

class RetrievalTask final : public EvaluationTask {
 public:
  explicit RetrievalTask(RetrievalSettings settings) : settings_(std::move(settings)) {}

  TaskResult run(DualEncoder& model, const Tokenizer& tokenizer, const EvaluationContext& context) const override {
    const auto source = open_source(settings_.data.source, context.source, "retrieval.source");
    TaskResult result;
    Captions captions;
    std::vector<at::Tensor> rows;
    std::vector<std::int64_t> indices;
    encode_source(model, source, context, settings_.data.max_samples, false, result,
                  [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
                    for (const EvaluationSample& sample : samples) {
                      add(sample.sample, captions);
                      indices.push_back(sample.index);
                    }
                    rows.push_back(features.global.to(at::kCPU, at::kFloat));
                  });
    if (captions.texts.empty()) user_error("retrieval: no sample of ", source->describe(), " has a caption");
    for (const auto& own : captions.by_image) {
      if (own.empty()) ++result.skipped["no_caption"];
    }
    const at::Tensor images = at::cat(rows);
    std::vector<std::string> prompts;
    for (const std::string& text : captions.texts) prompts.push_back(settings_.prompt_prefix + text);
    const at::Tensor texts = encode_texts(model, tokenizer, prompts, context);
    const auto scores = metrics::retrieval_recall(images, texts, at::tensor(captions.owner, at::kLong), settings_.topk);
    for (std::size_t i = 0; i < settings_.topk.size(); ++i) {
      result.metrics.emplace_back(concat("image_to_text_recall@", settings_.topk[i]), scores.image_to_text[i]);
    }
    for (std::size_t i = 0; i < settings_.topk.size(); ++i) {
      result.metrics.emplace_back(concat("text_to_image_recall@", settings_.topk[i]), scores.text_to_image[i]);
    }
    if (context.pictures) {
      const auto view = [&](std::int64_t n) {
        return model_view(*source, indices[static_cast<std::size_t>(n)], model.settings().preprocessing);
      };
      add_text_sheets(images, texts, captions, scores, view, result.pictures);
      add_image_sheets(images, texts, captions, scores, view, result.pictures);
    }
    return result;
  }

 private:
  using View = std::function<Image(std::int64_t)>;

  void add(const Sample& sample, Captions& captions) const {
    const auto image = static_cast<std::int64_t>(captions.by_image.size());
    const auto wanted = static_cast<std::size_t>(settings_.captions_per_image);
    std::vector<std::string> own = sample.captions;
    if (wanted > 0 && own.size() > wanted) own.resize(wanted);
    for (const std::string& text : own) {
      captions.texts.push_back(text);
      captions.owner.push_back(image);
    }
    captions.by_image.push_back(std::move(own));
  }

  static void add_text_sheets(const at::Tensor& images, const at::Tensor& texts, const Captions& captions,
                              const metrics::RetrievalScores& scores, const View& view, TaskPictures& pictures) {
    for (const std::int64_t m : spread(texts.size(0), kSheets)) {
      const auto [best, cosines] = metrics::nearest_by_cosine(texts.narrow(0, m, 1), images, kItems);
      const std::int64_t own = captions.owner[static_cast<std::size_t>(m)];
      RetrievalSheet sheet;
      sheet.text_to_image = true;
      sheet.query_text = captions.texts[static_cast<std::size_t>(m)];
      sheet.rank = scores.text_to_image_rank[m].item<std::int64_t>();
      for (std::int64_t i = 0; i < best.size(1); ++i) {
        const auto image = best[0][i].item<std::int64_t>();
        sheet.items.push_back({view(image), {}, cosines[0][i].item<double>(), image == own});
      }
      sheet.query_image = view(own);
      pictures.retrieval.push_back(std::move(sheet));
    }
  }

  static void add_image_sheets(const at::Tensor& images, const at::Tensor& texts, const Captions& captions,
                               const metrics::RetrievalScores& scores, const View& view, TaskPictures& pictures) {
    for (const std::int64_t n : spread(images.size(0), kSheets)) {
      if (captions.by_image[static_cast<std::size_t>(n)].empty()) continue;
      const auto [best, cosines] = metrics::nearest_by_cosine(images.narrow(0, n, 1), texts, kItems);
      RetrievalSheet sheet;
      sheet.text_to_image = false;
      sheet.query_image = view(n);
      sheet.truth = captions.by_image[static_cast<std::size_t>(n)];
      sheet.rank = scores.image_to_text_rank[n].item<std::int64_t>();
      for (std::int64_t i = 0; i < best.size(1); ++i) {
        const auto text = static_cast<std::size_t>(best[0][i].item<std::int64_t>());
        sheet.items.push_back({{}, captions.texts[text], cosines[0][i].item<double>(), captions.owner[text] == n});
      }
      pictures.retrieval.push_back(std::move(sheet));
    }
  }

  RetrievalSettings settings_;
};

}  // namespace

std::shared_ptr<EvaluationTask> make_retrieval_task(const RetrievalSettings& settings) {
  return std::make_shared<RetrievalTask>(settings);
}

}  // namespace tessera
