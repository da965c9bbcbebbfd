#include <functional>
#include <map>

#include "src/data/formats/captions.h"
#include "src/evaluation/embedder_views.h"
#include "src/evaluation/tasks/conditioned.h"
#include "src/evaluation/tasks/data_task.h"
#include "src/evaluation/tasks/retrieval_sheets.h"

namespace tessera {
namespace {

struct RetrievalSettings {
  TaskData data;
  std::int64_t captions_per_image = 0;
  std::vector<std::int64_t> topk = {1, 5, 10};
  bool sentences = false;
  std::string prompt_prefix;
  SimilaritySettings compared;
};

template <class Visitor>
void fields(Visitor& v, RetrievalSettings& s) {
  data_fields(v, s.data);
  equal_images_field(v, s.data);
  v("captions_per_image", s.captions_per_image, "use only the first N captions of each image; 0: all", config::at_least(0));
  v("topk", s.topk, "the values k for which to report the recall", config::at_least(1));
  v("sentences", s.sentences,
    "treat each sentence of a caption as a caption; texts are split at full stops, line ends and </s> (FLAIR's fine-grained retrieval)");
  v("prompt_prefix", s.prompt_prefix, "text put before every caption, such as \"a photo of \"");
  fields(v, s.compared);
}

std::optional<config::Problem> validate(const RetrievalSettings& settings) {
  if (auto problem = validate(settings.compared)) return problem;
  return check_topk(settings.topk);
}

// The maximum number of scores. At this number, the scores take 8 GB in float32 and 16 GB in double.
constexpr std::int64_t kMostScores = std::int64_t{2} << 30;

/// A function that returns, for one sample, the captions to use.
using OwnCaptions = std::function<std::vector<std::string>(const Sample& sample)>;

[[noreturn]] void refuse_without_sentences(const Source& source) {
  user_error("retrieval: no caption of ", source.describe(), " contains a sentence: take sentences: false");
}

/// Compares the images of a pass with all captions of the same data. The tokens of all images would take too much memory (0.4 MB
/// per image with 196 patches of width 512). So captions are read and embedded first, and for each batch of images only the scores
/// are kept.
class ConditionedRetrieval {
 public:
  /// Reads all captions of the pass, without decoding images, and embeds them, each with `prompt_prefix` in front. Scores are
  /// stored in `dtype`. Throws UserError if there would be more than kMostScores scores.
  ConditionedRetrieval(const Pass& pass, const OwnCaptions& own, const std::string& prompt_prefix, at::ScalarType dtype)
      : embedder_(pass.embedder) {
    EvaluationContext silent = pass.context;
    silent.progress = nullptr;
    const Pass texts_alone{.embedder = pass.embedder,
                           .context = silent,
                           .source = pass.source,
                           .max_samples = pass.max_samples,
                           .required = pass.required,
                           .images = EvaluationImages::as_read};
    TaskResult unused;
    std::vector<std::string> texts;
    texts_alone.run(unused, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures&) {
      for (const EvaluationSample& sample : samples) {
        const Own& read = own_[sample.index] = {std::ssize(texts), own(sample.sample)};
        texts.insert(texts.end(), read.captions.begin(), read.captions.end());
      }
    });
    const std::int64_t images = std::ssize(own_), count = std::ssize(texts);
    if (count == 0) refuse_without_sentences(*pass.source);
    if (images > kMostScores / count)
      user_error("retrieval.similarity compares each of ", with_thousands(images), " images with each of ", with_thousands(count),
                 " captions, and their scores do not fit into memory: set max_samples to ", std::max<std::int64_t>(1, kMostScores / count),
                 " or less, or take similarity: global");
    texts_ = embed_compactly(embedder_, prefixed(texts, prompt_prefix));
    scores_ = at::empty({images, count}, dtype);
  }

  /// Adds the next batch of the pass. Returns a function that compares the images of the batch with some captions, as
  /// RetrievalSheets requires.
  RetrievalSheets::BatchSimilarity add(const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
    const at::Tensor scores = scores_.narrow(0, std::ssize(captions_.by_image), std::ssize(samples));
    for (const EvaluationSample& sample : samples) {
      const auto found = own_.find(sample.index);
      TORCH_CHECK(found != own_.end(), "retrieval: the data returned different samples when they were read again");
      const auto& [column, captions] = found->second;
      for (std::int64_t i = 0; i < std::ssize(captions); ++i) columns_.push_back(column + i);
      captions_.add(captions);
      own_.erase(found);
    }
    scores.copy_(embedder_.similarity(features, texts_));
    return [this, scores](const std::vector<std::int64_t>& rows) {
      return scores.index_select(1, at::tensor(columns_, at::kLong).index_select(0, at::tensor(rows, at::kLong)));
    };
  }

  /// Returns the similarities between the N images that were added and their M captions, floating-point [N, M]. add()
  /// compared the images with all captions of the data, but captions of unreadable images have no column here.
  at::Tensor similarity() const {
    const at::Tensor seen = scores_.narrow(0, 0, std::ssize(captions_.by_image));
    if (std::ssize(columns_) == seen.size(1)) return seen;
    return seen.index_select(1, at::tensor(columns_, at::kLong));
  }

  /// Returns the captions of the images that were added.
  const Captions& captions() const { return captions_; }

 private:
  struct Own {
    std::int64_t column = 0;  // the column of the first caption
    std::vector<std::string> captions;
  };

  const Embedder& embedder_;
  std::map<std::int64_t, Own> own_;  // the captions that add() has not yet met, by sample index
  TowerFeatures texts_;
  at::Tensor scores_;  // [all images, all captions], filled row by row
  Captions captions_;
  std::vector<std::int64_t> columns_;  // for each caption in captions_, its column in scores_
};

class RetrievalTask final : public DataTask<RetrievalSettings> {
 public:
  std::string rule() const override {
    return "recall@k: the share of captions whose image is among the k nearest of all images (text_to_image), and of images with one of "
           "their captions among the k nearest of all captions (image_to_text)." + similarity_sentence(settings_.compared);
  }

  void check(const EvaluationContext& context) const override {
    check_conditioned(context, "retrieval.similarity", settings_.compared.similarity);
    DataTask::check(context);
  }

  std::vector<std::string> metric_names(const Embedder& embedder) const override {
    // returns no names, because add_sparsity() may add further metrics, whose names are not known here
    if (embedder.token_space() > 0 || settings_.compared.text_encoder_free) return {};
    std::vector<std::string> out;
    for (const char* direction : {"image_to_text", "text_to_image"})
      for (const std::int64_t k : settings_.topk) out.push_back(concat(direction, "_recall@", k));
    return out;
  }

  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    return measure_by_similarity("retrieval", settings_.compared, embedder, context, [&](const Embedder& model) {
      Pass pass = pass_over_data(model, context);
      pass.counts_equal_images = true;
      pass.reads_pixels = context.images;
      return settings_.compared.similarity == "global" ? measure(pass) : measure_conditioned(pass);
    });
  }

 private:
  Required required() const override { return captioned(); }

  TaskResult measure(const Pass& pass) const {
    const Embedder& embedder = pass.embedder;
    TaskResult result;
    Captions captions;
    RetrievalSheets sheets(embedder, settings_.prompt_prefix, pass.total());
    const BatchBody body = [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
      for (const EvaluationSample& sample : samples) captions.add(own_captions(sample.sample));
      if (pass.context.images) sheets.add(samples, features, captions);
    };
    const TowerFeatures images = pass.run_and_keep(result, body);
    if (captions.texts.empty()) refuse_without_sentences(*pass.source);
    const TowerFeatures texts = embed_compactly(embedder, prefixed(captions.texts, settings_.prompt_prefix));
    const at::Tensor owner = at::tensor(captions.owner, at::kLong);
    const metrics::RetrievalScores scores = ranked(embedder, images, texts, owner);
    add_recalls(scores, owner, result);
    for (const CutEmbedder& cut : cut_embedders(embedder, pass.context.widths, images.global.size(1)))
      add_recalls(ranked(cut, cut.cut(images), cut.cut(texts), owner), owner, result, cut.prefix());
    if (embedder.token_space() > 0) {
      metrics::SparsityMeter image_tokens, text_tokens;
      image_tokens.add(images.global);
      text_tokens.add(texts.global);
      add_sparsity(result, image_tokens, text_tokens);
    }
    const auto similarity = [&](std::int64_t row) {
      return embedder.similarity(slice(images, {row, row + 1}), texts).squeeze(0);
    };
    if (pass.context.images) add_retrieval_cards(sheets.finished(similarity, captions, scores), result);
    return result;
  }

  TaskResult measure_conditioned(const Pass& pass) const {
    // Float32 is precise enough for conditioned scores. But with topk, a text that is not a candidate gets its cosine minus 4 as its
    // score, and float32 would lose the order of such scores.
    const at::ScalarType dtype = settings_.compared.similarity == "topk" ? at::kDouble : at::kFloat;
    ConditionedRetrieval compared(pass, [this](const Sample& sample) { return own_captions(sample); }, settings_.prompt_prefix, dtype);
    TaskResult result;
    RetrievalSheets sheets(pass.embedder, settings_.prompt_prefix, pass.total());
    pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
      const auto similarity = compared.add(samples, features);
      if (pass.context.images) sheets.add(samples, similarity, compared.captions());
    });
    const at::Tensor all = compared.similarity();
    const at::Tensor owner = at::tensor(compared.captions().owner, at::kLong);
    const auto tile = [&](metrics::RowRange images, metrics::RowRange texts) {
      return all.slice(0, images.begin, images.end).slice(1, texts.begin, texts.end);
    };
    const metrics::RetrievalScores scores = metrics::retrieval_recall(tile, all.size(0), owner, settings_.topk);
    add_recalls(scores, owner, result);
    if (pass.context.images)
      add_retrieval_cards(sheets.finished([&](std::int64_t row) { return all[row]; }, compared.captions(), scores), result);
    return result;
  }

  // Adds the recalls, whose names begin with `prefix`. The bootstrap draws the captions of one image together, because they are not independent samples.
  void add_recalls(const metrics::RetrievalScores& scores, const at::Tensor& owner, TaskResult& result, const std::string& prefix = "") const {
    result.texts = owner.size(0);
    add_hits(prefix + "image_to_text_recall@", settings_.topk, scores.image_to_text_rank, result);
    add_hits(prefix + "text_to_image_recall@", settings_.topk, scores.text_to_image_rank, result, scores.image_to_text_rank.size(0), owner);
  }

  metrics::RetrievalScores ranked(const Embedder& embedder, const TowerFeatures& images, const TowerFeatures& texts,
                                  const at::Tensor& owner) const {
    if (embedder.compares_by_cosine() && !images.global.is_sparse() && !texts.global.is_sparse())
      return metrics::retrieval_recall(images.global, texts.global, owner, settings_.topk);
    return metrics::retrieval_recall(similarity_tile(embedder, images, texts), images.global.size(0), owner, settings_.topk);
  }

  std::vector<std::string> own_captions(const Sample& sample) const {
    const auto wanted = static_cast<std::size_t>(settings_.captions_per_image);
    std::vector<std::string> own = sample.captions;
    if (wanted > 0 && own.size() > wanted) own.resize(wanted);
    if (!settings_.sentences) return own;
    std::vector<std::string> sentences;
    for (const std::string& caption : own)
      for (std::string& sentence : caption_sentences(caption)) sentences.push_back(std::move(sentence));
    return sentences;
  }
};

}  // namespace

void add_retrieval(TaskRegistry& list) {
  add_task<RetrievalTask>(list, "retrieval", "image-text retrieval, recall at k in both directions");
}

}  // namespace tessera
