#pragma once

#include <functional>
#include <map>

#include <ATen/core/Tensor.h>

#include "src/data/loading/evaluation_reader.h"
#include "src/evaluation/tasks/pass.h"
#include "src/evaluation/tasks/retrieval_sheets.h"

namespace tessera {

/// A function that returns, for one sample, the captions to use in a retrieval task.
using OwnCaptions = std::function<std::vector<std::string>(const Sample& sample)>;

/// Returns the error message for captions that contain no sentence.
std::string no_sentence(const Source& source);

/// Compares the images of a pass with all captions of the same data. The tokens of all images would take too much memory (0.4 MB
/// per image with 196 patches of width 512). So captions are read and embedded first, and for each batch of images only the scores
/// are kept.
class ConditionedRetrieval {
 public:
  /// Reads all captions of the pass, without decoding images, and embeds them, each with `prompt_prefix` in front. Scores are
  /// stored in `dtype`. Throws UserError if there would be more than kMostScores scores.
  ConditionedRetrieval(const Pass& pass, const OwnCaptions& own, const std::string& prompt_prefix,
                       at::ScalarType dtype);

  /// Adds the next batch of the pass. Returns a function that compares the images of the batch with some captions, as
  /// RetrievalSheets requires.
  RetrievalSheets::BatchSimilarity add(const std::vector<EvaluationSample>& samples, const TowerFeatures& features);
  /// Returns the similarities between the N images that were added and their M captions, floating-point [N, M]. add()
  /// compared the images with all captions of the data, but captions of unreadable images have no column here.
  at::Tensor similarity() const;
  /// Returns the captions of the images that were added.
  const Captions& captions() const { return captions_; }

 private:
  void add_captions(std::int64_t index);

  const Embedder& embedder_;
  std::map<std::int64_t, std::vector<std::string>> own_;  // captions by sample index
  std::map<std::int64_t, std::int64_t> first_;            // the column of each sample's first caption, by sample index
  TowerFeatures texts_;
  at::Tensor scores_;  // [all images, all captions], filled row by row
  Captions captions_;
  std::vector<std::int64_t> columns_;  // for each caption in captions_, its column in scores_
};

}  // namespace tessera
