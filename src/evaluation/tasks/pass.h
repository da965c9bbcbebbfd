#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/data/loading/evaluation_reader.h"
#include "src/evaluation/feature_store.h"
#include "src/evaluation/metrics/retrieval.h"
#include "src/evaluation/source_order.h"
#include "src/evaluation/tasks/task_settings.h"
#include <tessera/data/loading/loader.h>
#include <tessera/evaluation/task.h>

namespace tessera {

/// Returns the class names in the setting `classes` or, if it is empty, the source's class names. Throws TaskMisfit if there are
/// none. `task` is the task's registered name, for the message.
std::vector<std::string> class_names_for(const TextList& classes, const Source& source, const std::string& task);

/// A condition that a sample must meet for a task to use it.
struct Required {
  std::function<bool(const Sample&)> in;  // returns true for the samples to use; if `in` is empty, all samples are used
  std::string reason;                     // key under which other samples are counted as skipped: "no_label"
  std::string name;                       // what is required, for messages: "a class label"
  std::string field = {};                 // the field's name in Source::describe_fields(): "label"
};
/// Returns the requirement that a sample has a class label.
Required labeled();
/// Returns the requirement that a sample has a caption.
Required captioned();

/// Checks that a task's data contain what the task requires. Reads a few samples: from a stream, the first samples; from any other source,
/// samples spread over the first max_samples (-1: all). If none of these samples has what is required, reads more. Ignores samples that
/// cannot be read. Calls `look` with each sample that has what is required; `look` may throw. Throws TaskMisfit if no sample has what is
/// required. `setting` is the name of the task's setting that selects the data ("source").
void check_samples(const Source& source, const std::string& setting, std::int64_t max_samples, const Required& required,
                   const std::function<void(const Sample&)>& look = {});

/// Returns false if check_samples() would throw because no sample has what is required. Calls `look` like check_samples().
bool some_sample_has(const Source& source, std::int64_t max_samples, const Required& required,
                     const std::function<void(const Sample&)>& look = {});

/// A function that is called with samples and the features of their images; row i of the features belongs to sample i.
using BatchBody = std::function<void(const std::vector<EvaluationSample>& samples, const TowerFeatures& features)>;

/// A pass over the samples of a source, in order. Embeds the images unless the task needs only texts. Samples and features are
/// freed after the body has been called with them.
struct Pass {
  const Embedder& embedder;
  const EvaluationContext& context;
  std::shared_ptr<const Source> source;
  std::int64_t max_samples = -1;  // maximum number of samples; -1: all
  Required required = {};
  ViewNeeds needs = {};
  EvaluationImages images = EvaluationImages::prepared;  // with as_read, images are not embedded, and their features are empty
  bool counts_equal_images = false;  // for tasks with equal_images_field()
  bool reads_pixels = true;  // false: the body uses no pixels, masks or depths, so other ranks keep them, or nobody decodes the images
  std::optional<SourceOrder> order = {};  // how `source` was opened; unset: only this rank reads it

  /// Returns the number of samples that will be read, including unusable ones.
  std::int64_t total() const;
  /// Calls `body` with each batch. Adds to the result's `samples`, `skipped` and `equal_images`, and sets its `data`. Throws UserError if
  /// an embedding is not finite or no sample is usable.
  void run(TaskResult& result, const BatchBody& body) const;
  /// Does the same, and returns the compact features (Embedder::compact) of all images.
  TowerFeatures run_and_keep(TaskResult& result, const BatchBody& body) const;

 private:
  /// Returns whether all ranks read and decode the images.
  bool on_all_ranks() const;
  /// Reads the images of `samples` on all ranks, which then begin with `next`. Returns the samples whose images are good, and counts the
  /// others.
  std::vector<EvaluationSample> read_on_all_ranks(std::vector<EvaluationSample> samples, const std::vector<EvaluationSample>& next,
                                                  const EmbeddingTable* kept, EvaluationReader& reader) const;
  /// Returns the cache of embeddings, or null if there is none.
  EmbeddingTable* kept() const;
  TowerFeatures encode_images(const std::vector<EvaluationSample>& samples, EmbeddingTable* kept) const;
  TowerFeatures computed(const std::vector<EvaluationSample>& samples, const std::vector<std::size_t>& chosen) const;
  void warn_of_equal_images(std::int64_t equal, std::int64_t used, const std::string& first) const;
};

/// Returns the encoder's patch tokens, [B, rows * columns, D], of a pass that needs `encoder_tokens`. Throws UserError if they do not form
/// a grid. `task` is the task's registered name, for the message.
const at::Tensor& patches_of(const TowerFeatures& features, const std::string& task);

/// Returns the first caption of each sample.
std::vector<std::string> first_captions(const std::vector<EvaluationSample>& samples);

/// Returns the tokens of a text without padding (Embedder::token_texts). `input` holds the ids of texts, of which `row` is one.
std::vector<std::string> tokens_of(const Embedder& embedder, const TowerInput& input, std::int64_t row);

/// Embeds texts. Throws UserError if an embedding is not finite.
TowerFeatures embed_texts(const Embedder& embedder, const std::vector<std::string>& texts, const ViewNeeds& needs = {});

/// Returns compact features (Embedder::compact) of any number of texts. Never holds the features of all texts at full width.
TowerFeatures embed_compactly(const Embedder& embedder, const std::vector<std::string>& texts);

/// Returns compact features of classes. The prompts of a class are all templates with the class name filled in.
TowerFeatures embed_classes(const Embedder& embedder, const std::vector<std::string>& names, const TextList& templates,
                            const ViewNeeds& needs = {});

/// Returns the elements of a CPU tensor, row by row. The elements must have the type T.
template <class T>
std::vector<T> to_vector(const at::Tensor& values) {
  const at::Tensor flat = values.contiguous();
  return {flat.const_data_ptr<T>(), flat.const_data_ptr<T>() + flat.numel()};
}

/// Returns the features of the given rows, in the given order. Compact features stay compact.
TowerFeatures select_rows(const TowerFeatures& features, const std::vector<std::int64_t>& rows);

/// Returns a function that compares ranges of images and texts.
metrics::SimilarityTile similarity_tile(const Embedder& embedder, const TowerFeatures& images, const TowerFeatures& texts);

/// Returns the features of a range of rows. Dense tensors share memory with the original.
TowerFeatures slice(const TowerFeatures& features, metrics::RowRange rows);

}  // namespace tessera
