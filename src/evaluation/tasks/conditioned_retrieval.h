#pragma once

#include <functional>
#include <map>

#include <ATen/core/Tensor.h>

#include "src/evaluation/tasks/pass.h"
#include "src/evaluation/tasks/retrieval_sheets.h"

namespace tessera {

/// Returns the captions of a sample that a retrieval task uses.
using OwnCaptions = std::function<std::vector<std::string>(const Sample& sample)>;

/// Returns the error message for captions that contain no sentence.
std::string no_sentence(const Source& source);

/// Compares the images of a pass with all captions of the same data. The tokens of all images would take too much memory (0.4
/// MB per image at 196 patches and width 512), so captions are read and embedded first, and only the scores of each batch of
/// images are kept.
class ConditionedRetrieval {
 public:
  /// Reads all captions of the pass, without decoding images, and embeds them with `prompt_prefix` before each. Scores are kept
  /// in `dtype`. Throws UserError if they would not fit (kMostScores).
  ConditionedRetrieval(const Pass& pass, const OwnCaptions& own, const std::string& prompt_prefix,
                       at::ScalarType dtype);

  /// Adds the next batch of the pass. Returns its similarity with some captions, in the form that RetrievalSheets needs.
  RetrievalSheets::BatchSimilarity add(const std::vector<EvaluationSample>& samples, const TowerFeatures& features);
  /// Returns the similarity of all images seen with their captions, [N, M] floating. Captions of images that could not be read
  /// are not queries, but they were among the candidates of the other images.
  at::Tensor similarity() const;
  /// The captions of the images seen.
  const Captions& captions() const { return captions_; }

 private:
  void add_captions(std::int64_t index);

  const Embedder& embedder_;
  std::map<std::int64_t, std::vector<std::string>> own_;  // by sample index
  std::map<std::int64_t, std::int64_t> first_;            // by sample index: index of its first caption among all
  TowerFeatures texts_;
  at::Tensor scores_;  // [all images, all captions], filled row by row
  Captions captions_;
  std::vector<std::int64_t> columns_;  // the columns of scores_ that hold captions_
};

}  // namespace tessera
