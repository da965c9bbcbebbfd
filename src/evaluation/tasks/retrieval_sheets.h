#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/evaluation/tasks/examples.h"
#include <tessera/data/loading/loader.h>
#include <tessera/evaluation/embedder.h>
#include <tessera/evaluation/metrics/retrieval.h>
#include <tessera/report/task_pictures.h>

namespace tessera {

/// Captions with the image (row of the features) that each belongs to.
struct Captions {
  std::vector<std::string> texts;
  std::vector<std::int64_t> owner;
  std::vector<std::vector<std::string>> by_image;
};

/// Returns the texts with `prefix` before each.
std::vector<std::string> prefixed(const std::vector<std::string>& texts, const std::string& prefix);

/// Adds the image to the sheet if it is among the `most` best so far; the earlier one comes first at ties.
void offer_picture(RetrievalSheet& sheet, double score, const at::Tensor& pixels, bool right, std::int64_t most);

/// Makes a report's retrieval sheets in one pass over the images, and keeps only images that it may show. The query captions
/// come from the first batch, so that every image can be compared with them as it passes. The query images are spread over the
/// whole pass. Of all queries followed, it shows those whose right item ranks lowest.
class RetrievalSheets {
 public:
  /// `total` is the number of samples of the pass.
  RetrievalSheets(const Embedder& embedder, std::string prompt_prefix, std::int64_t total);
  /// Adds the next batch; `captions` are those of all images so far, including this batch's.
  void add(const std::vector<EvaluationSample>& samples, const TowerFeatures& features, const Captions& captions);
  /// For images that have already been compared with the captions: returns the similarity of the batch's images with some rows
  /// of `captions`, [B, rows].
  using BatchSimilarity = std::function<at::Tensor(const std::vector<std::int64_t>& rows)>;
  void add(const std::vector<EvaluationSample>& samples, const BatchSimilarity& similarity, const Captions& captions);
  /// Returns the similarity of an image, given by its row, with all captions, [M].
  using RowSimilarity = std::function<at::Tensor(std::int64_t picture)>;
  /// Returns the sheets; call it after the last batch.
  std::vector<RetrievalSheet> finished(const RowSimilarity& similarity, const Captions& captions,
                                       const metrics::RetrievalScores& scores);

 private:
  struct Query {
    std::int64_t row = 0;  // index of the caption or image
    RetrievalSheet sheet;
  };

  void choose_captions(const Captions& captions);

  const Embedder& embedder_;
  std::string prompt_prefix_;
  ExampleChooser images_;
  std::vector<Query> by_text_, by_image_;
  TowerFeatures queries_;  // features of the captions in by_text_
};

}  // namespace tessera
