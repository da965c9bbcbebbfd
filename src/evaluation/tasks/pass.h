#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tessera/data/loading/loader.h>
#include <tessera/evaluation/feature_store.h>
#include <tessera/evaluation/metrics/retrieval.h>
#include <tessera/evaluation/task.h>
#include <tessera/evaluation/tasks/task_settings.h>

namespace tessera {

/// Opens the source that a task names, or returns the run's. `key` is its path in the settings ("zero_shot.source"). Throws
/// UserError if there is neither.
std::shared_ptr<const Source> open_source(const std::optional<config::ModuleSettings>& choice,
                                          const std::shared_ptr<const Source>& fallback, const std::string& key);

/// Returns the class names of the `classes` setting, or the source's. Throws TaskMisfit if there are none; `task` is the task's
/// registered name.
std::vector<std::string> class_names_for(const TextList& classes, const Source& source, const std::string& task);

/// A condition that a sample must meet for a task to use it.
struct Required {
  std::function<bool(const Sample&)> in;  // empty: every sample is used
  std::string reason;                     // key that counts the samples that do not meet it: "no_label"
  std::string name;                       // what is required, for messages: "a class label"
  std::string field = {};                 // the field's name in Source::describe_fields(): "label"
};
/// Requires a class label.
Required labeled();
/// Requires a caption.
Required captioned();

/// Returns the part of an error message after "no sample": "has a class label. In their members, label is looked for in cls
/// (label_keys)".
std::string lacking(const Source& source, const Required& required);

/// Called with samples and the features of their images, row by row.
using BatchBody = std::function<void(const std::vector<EvaluationSample>& samples, const TowerFeatures& features)>;

/// One pass over a source in order, through the image tower unless only texts are needed. Samples and features exist only
/// during the call of the body.
struct Pass {
  const Embedder& embedder;
  const EvaluationContext& context;
  std::shared_ptr<const Source> source;
  std::int64_t max_samples = -1;  // -1: all
  Required required = {};
  ViewNeeds needs = {};
  EvaluationPictures pictures = EvaluationPictures::prepared;  // as_read: images are not embedded and the features are empty
  bool reads_pixels = true;  // false: the body does not use pixels, so images with cached embeddings are not decoded

  /// The number of samples that will be read, including unusable ones.
  std::int64_t total() const;
  /// Calls `body` with each batch. Adds to the result's `samples` and `skipped`, and sets its `data`. Throws UserError if an
  /// embedding is not finite or no sample is usable.
  void run(TaskResult& result, const BatchBody& body) const;

 private:
  /// Returns the cache of embeddings, or null if there is none.
  EmbeddingTable* kept() const;
  TowerFeatures features_of(const std::vector<EvaluationSample>& samples, EmbeddingTable* kept) const;
  TowerFeatures computed(const std::vector<const EvaluationSample*>& samples) const;
};

/// Embeds texts. Throws UserError if an embedding is not finite.
TowerFeatures embed_texts(const Embedder& embedder, const std::vector<std::string>& texts, const ViewNeeds& needs = {});

/// Returns compact features of any number of texts (Embedder::compact), without ever holding all at full width.
TowerFeatures embed_compactly(const Embedder& embedder, const std::vector<std::string>& texts);

/// Returns compact features of classes, from prompts that fill every template with every class name.
TowerFeatures embed_classes(const Embedder& embedder, const std::vector<std::string>& names, const TextList& templates,
                            const ViewNeeds& needs = {});

/// Returns the elements of a CPU tensor of type T, row by row.
template <class T>
std::vector<T> to_vector(const at::Tensor& values) {
  const at::Tensor flat = values.contiguous();
  return {flat.const_data_ptr<T>(), flat.const_data_ptr<T>() + flat.numel()};
}

/// Returns the features of these rows, in this order; compact features stay compact.
TowerFeatures rows_of(const TowerFeatures& features, const std::vector<std::int64_t>& rows);

/// Returns a range of rows; dense tensors share memory with the original.
TowerFeatures slice(const TowerFeatures& features, metrics::RowRange rows);

}  // namespace tessera
