#include "src/data/loading/evaluation_reader.h"
#include "src/evaluation/tasks/conditioned_retrieval.h"

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

// The maximum number of scores. At this number, the scores take 8 GB in float32 and 16 GB in double.
constexpr std::int64_t kMostScores = std::int64_t{2} << 30;

}  // namespace

std::string no_sentence(const Source& source) {
  return concat("retrieval: no caption of ", source.describe(), " contains a sentence: take sentences: false");
}

ConditionedRetrieval::ConditionedRetrieval(const Pass& pass, const OwnCaptions& own, const std::string& prompt_prefix,
                                           at::ScalarType dtype)
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
      first_[sample.index] = std::ssize(texts);
      std::vector<std::string>& captions = own_[sample.index] = own(sample.sample);
      texts.insert(texts.end(), captions.begin(), captions.end());
    }
  });
  const std::int64_t images = std::ssize(own_), count = std::ssize(texts);
  if (count == 0) throw UserError(no_sentence(*pass.source));
  if (images > kMostScores / count)
    user_error("retrieval.similarity compares each of ", with_thousands(images), " images with each of ",
               with_thousands(count), " captions, and their scores do not fit into memory: set max_samples to ",
               std::max<std::int64_t>(1, kMostScores / count),
               " or less, or take similarity: global");
  texts_ = embed_compactly(embedder_, prefixed(texts, prompt_prefix));
  scores_ = at::empty({images, count}, dtype);
}

RetrievalSheets::BatchSimilarity ConditionedRetrieval::add(const std::vector<EvaluationSample>& samples,
                                                           const TowerFeatures& features) {
  const std::int64_t row = std::ssize(captions_.by_image);
  for (const EvaluationSample& sample : samples) add_captions(sample.index);
  const at::Tensor own = scores_.narrow(0, row, std::ssize(samples));
  own.copy_(embedder_.similarity(features, texts_));
  return [this, own](const std::vector<std::int64_t>& rows) {
    std::vector<std::int64_t> columns;
    for (const std::int64_t caption : rows) columns.push_back(columns_[static_cast<std::size_t>(caption)]);
    return own.index_select(1, at::tensor(columns, at::kLong));
  };
}

void ConditionedRetrieval::add_captions(std::int64_t index) {
  const auto found = own_.find(index);
  TORCH_CHECK(found != own_.end(), "retrieval: the data returned different samples when they were read again");
  const std::int64_t image = std::ssize(captions_.by_image);
  std::int64_t column = first_.at(index);
  for (const std::string& text : found->second) {
    captions_.texts.push_back(text);
    captions_.owner.push_back(image);
    columns_.push_back(column++);
  }
  captions_.by_image.push_back(std::move(found->second));
  own_.erase(found);
}

at::Tensor ConditionedRetrieval::similarity() const {
  const at::Tensor seen = scores_.narrow(0, 0, std::ssize(captions_.by_image));
  if (std::ssize(columns_) == seen.size(1)) return seen;
  return seen.index_select(1, at::tensor(columns_, at::kLong));
}

}  // namespace tessera
