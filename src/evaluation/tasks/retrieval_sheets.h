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

/// Texts with a prompt's beginning before each.
std::vector<std::string> prefixed(const std::vector<std::string>& texts, const std::string& prefix);

/// Keeps the picture if it is among the `most` best so far; the earlier one of equals comes first.
void offer_picture(RetrievalSheet& sheet, double score, const at::Tensor& pixels, bool right, std::int64_t most);

/// Makes a report's retrieval sheets in one pass over the pictures: it keeps those alone that it may show. The captions
/// that pictures are found for are the first batch's, so that all pictures come by while the best are kept; the
/// pictures that captions are found for are spread over the whole pass. Of those that it follows it shows the ones whose
/// right item comes last.
class RetrievalSheets {
 public:
  /// `total`: samples of the pass.
  RetrievalSheets(const Embedder& embedder, std::string prompt_prefix, std::int64_t total);
  /// The next batch; `captions` are those of all pictures so far, this batch's included.
  void add(const std::vector<EvaluationSample>& samples, const TowerFeatures& features, const Captions& captions);
  /// The same where pictures have been compared with captions already: gives the similarity of the batch's pictures with some
  /// captions, rows of `captions`, [B, rows].
  using BatchSimilarity = std::function<at::Tensor(const std::vector<std::int64_t>& rows)>;
  void add(const std::vector<EvaluationSample>& samples, const BatchSimilarity& similarity, const Captions& captions);
  /// After the last batch; gives the similarity of a picture, by its row, with all captions, [M].
  using RowSimilarity = std::function<at::Tensor(std::int64_t picture)>;
  std::vector<RetrievalSheet> finished(const RowSimilarity& similarity, const Captions& captions,
                                       const metrics::RetrievalScores& scores);

 private:
  struct Query {
    std::int64_t row = 0;  // among the captions or the images
    RetrievalSheet sheet;
  };

  void choose_captions(const Captions& captions);

  const Embedder& embedder_;
  std::string prompt_prefix_;
  ExampleChooser images_;
  std::vector<Query> by_text_, by_image_;
  TowerFeatures queries_;  // of by_text_
};

}  // namespace tessera
