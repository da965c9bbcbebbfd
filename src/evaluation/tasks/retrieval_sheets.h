#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/data/loading/evaluation_reader.h"
#include "src/evaluation/metrics/retrieval.h"
#include "src/evaluation/tasks/results.h"
#include <tessera/data/loading/loader.h>
#include <tessera/evaluation/embedder.h>

namespace tessera {

/// Captions, and for each caption its image (the row of the image's features).
struct Captions {
  std::vector<std::string> texts;
  std::vector<std::int64_t> owner;
  std::vector<std::vector<std::string>> by_image;

  /// Adds the captions of the next image.
  void add(const std::vector<std::string>& own);
};

/// A caption with the images found for it, or an image with the captions found for it; best first.
struct RetrievalSheet {
  struct Item {
    Image image;       // for text-to-image: the image found
    std::string text;  // the text found; for text-to-image: the name of the image found
    double score = 0;  // cosine
    bool right = false;
  };
  bool text_to_image = true;
  Image query_image;               // for image-to-text: the query; for text-to-image: the correct image
  std::string query_text;          // for text-to-image: the query
  std::vector<std::string> truth;  // for image-to-text: the image's own captions
  std::int64_t rank = 0;           // rank of the highest-ranked correct item, counted from 0; -1 if no item is correct
  std::vector<Item> items;
  std::string query_name = {};  // the name of query_image
};

/// Returns the sheet as a part of a card (src/report/cards.h).
nlohmann::json make_sheet(const RetrievalSheet& sheet);

/// Adds the sheets of both directions to the report's cards.
void add_retrieval_cards(const std::vector<RetrievalSheet>& sheets, TaskResult& result);

/// Returns the texts, each with `prefix` in front.
std::vector<std::string> prefixed(const std::vector<std::string>& texts, const std::string& prefix);

/// Makes a report's retrieval sheets in one pass over the images. Keeps only images that the report may show. The query captions come from
/// the first batch, so that every image can be compared with them during the pass. The query images are spread over the whole pass. Makes
/// sheets only for the queries whose correct items rank worst.
class RetrievalSheets {
 public:
  /// `total` is the number of samples of the pass.
  RetrievalSheets(const Embedder& embedder, std::string prompt_prefix, std::int64_t total);
  /// Adds the next batch. `captions` are the captions of all images so far, including this batch.
  void add(const std::vector<EvaluationSample>& samples, const TowerFeatures& features, const Captions& captions);
  /// A function that returns the similarities of a batch's images with the given rows of `captions`, [B, rows]. It is used if
  /// the images have already been compared with the captions.
  using BatchSimilarity = std::function<at::Tensor(const std::vector<std::int64_t>& rows)>;
  void add(const std::vector<EvaluationSample>& samples, const BatchSimilarity& similarity, const Captions& captions);
  /// A function that returns the similarities of an image, given by its row, with all captions: [M].
  using RowSimilarity = std::function<at::Tensor(std::int64_t image)>;
  /// Returns the sheets. Must be called after the last batch.
  std::vector<RetrievalSheet> finished(const RowSimilarity& similarity, const Captions& captions, const metrics::RetrievalScores& scores);

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
