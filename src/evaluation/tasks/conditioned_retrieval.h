#pragma once

#include <functional>
#include <map>

#include <ATen/core/Tensor.h>

#include "src/evaluation/tasks/pass.h"
#include "src/evaluation/tasks/retrieval_sheets.h"

namespace tessera {

/// The captions that a retrieval task takes of a sample.
using OwnCaptions = std::function<std::vector<std::string>(const Sample& sample)>;

/// What a task says where nothing is left of the captions.
std::string no_sentence(const Source& source);

/// Pictures of a pass compared with all captions of the same data. Pictures' tokens are too large to be kept (0.4 MB each at
/// 196 patches and width 512), so that the captions are read and embedded first, and of a batch of pictures the scores alone
/// stay.
class ConditionedRetrieval {
 public:
  /// Reads all captions of the pass, without decoding a picture, and embeds them with `prompt_prefix` before each. Scores are
  /// kept in `dtype`. Throws UserError where they would not fit (kMostScores).
  ConditionedRetrieval(const Pass& pass, const OwnCaptions& own, const std::string& prompt_prefix,
                       at::ScalarType dtype);

  /// The next batch of the pass. Returns its similarity with some captions, as RetrievalSheets asks for it.
  RetrievalSheets::BatchSimilarity add(const std::vector<EvaluationSample>& samples, const TowerFeatures& features);
  /// Of all pictures that came by with the captions of these, [N, M] floating. Captions of pictures that could not be read
  /// are no queries, but have been among the candidates of others.
  at::Tensor similarity() const;
  /// Captions of the pictures that came by.
  const Captions& captions() const { return captions_; }

 private:
  void add_captions(std::int64_t index);

  const Embedder& embedder_;
  std::map<std::int64_t, std::vector<std::string>> own_;  // by the samples' places in the data
  std::map<std::int64_t, std::int64_t> first_;            // each one's first caption among all
  TowerFeatures texts_;
  at::Tensor scores_;  // [all pictures, all captions], filled row by row
  Captions captions_;
  std::vector<std::int64_t> columns_;  // of captions_ in scores_
};

}  // namespace tessera
