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

/// The source that a task names, or the run's. `key` is its path in the settings ("zero_shot.source"). Throws UserError
/// when there is neither.
std::shared_ptr<const Source> open_source(const std::optional<config::ModuleSettings>& choice,
                                          const std::shared_ptr<const Source>& fallback, const std::string& key);

/// The classes a task asks about: those of its `classes` setting, or the source's. Throws TaskMisfit when there are none;
/// `task` is its registered name.
std::vector<std::string> class_names_for(const TextList& classes, const Source& source, const std::string& task);

/// What a sample must have for a task to use it.
struct Required {
  std::function<bool(const Sample&)> in;  // empty: nothing
  std::string reason;                     // counts the samples that lack it: "no_label"
  std::string name;                       // "a class label"
  std::string field = {};                 // as Source::describe_fields() calls it: "label"
};
/// A class label.
Required labeled();
/// A caption.
Required captioned();

/// "has a class label. In their members, label is looked for in cls (label_keys)", after "no sample".
std::string lacking(const Source& source, const Required& required);

/// Samples with the features of their pictures, row by row.
using BatchBody = std::function<void(const std::vector<EvaluationSample>& samples, const TowerFeatures& features)>;

/// One pass of a source in order, through the image tower unless only texts are looked at: what comes by is not to be had
/// again.
struct Pass {
  const Embedder& embedder;
  const EvaluationContext& context;
  std::shared_ptr<const Source> source;
  std::int64_t max_samples = -1;  // -1: all
  Required required = {};
  ViewNeeds needs = {};
  EvaluationPictures pictures = EvaluationPictures::prepared;  // as_read: none is embedded, the features are empty
  bool reads_pixels = true;  // false: nobody looks at the samples' pixels, and those of kept embeddings are not decoded

  /// Number of samples that will be read, unusable ones included.
  std::int64_t total() const;
  /// Adds to the result's samples and skipped, and sets its data. Throws UserError when an embedding is not finite, or
  /// when no sample is usable.
  void run(TaskResult& result, const BatchBody& body) const;

 private:
  /// Where embeddings are kept; null: nowhere.
  EmbeddingTable* kept() const;
  TowerFeatures features_of(const std::vector<EvaluationSample>& samples, EmbeddingTable* kept) const;
  TowerFeatures computed(const std::vector<const EvaluationSample*>& samples) const;
};

/// Throws UserError when an embedding of a text is not finite.
TowerFeatures embed_texts(const Embedder& embedder, const std::vector<std::string>& texts, const ViewNeeds& needs = {});

/// Compact features of any number of texts (Embedder::compact): never those of all at their full width.
TowerFeatures embed_compactly(const Embedder& embedder, const std::vector<std::string>& texts);

/// Compact features of classes by their prompts: every template filled with every class name.
TowerFeatures embed_classes(const Embedder& embedder, const std::vector<std::string>& names, const TextList& templates,
                            const ViewNeeds& needs = {});

/// The elements of a CPU tensor of type T, row by row.
template <class T>
std::vector<T> to_vector(const at::Tensor& values) {
  const at::Tensor flat = values.contiguous();
  return {flat.const_data_ptr<T>(), flat.const_data_ptr<T>() + flat.numel()};
}

/// The features of these rows, in this order; compact ones stay compact.
TowerFeatures rows_of(const TowerFeatures& features, const std::vector<std::int64_t>& rows);

/// Some rows of features; those of dense tensors share memory with them.
TowerFeatures slice(const TowerFeatures& features, metrics::RowRange rows);

}  // namespace tessera
