#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/data/loading/evaluation_reader.h"
#include "src/data/sources/one_per_image.h"
#include "src/evaluation/feature_store.h"
#include "src/evaluation/metrics/retrieval.h"
#include "src/evaluation/tasks/task_settings.h"
#include <tessera/data/loading/loader.h>
#include <tessera/evaluation/task.h>

namespace tessera {

/// Opens the source that a task names; if it names none, returns `fallback`, the run's source. `key` is the setting's path
/// ("zero_shot.source"). Samples that name the same image file are one sample (one_sample_per_image()). Throws UserError if there is
/// neither.
std::shared_ptr<const Source> open_source(const std::optional<config::ModuleSettings>& choice,
                                          const std::shared_ptr<const Source>& fallback, const std::string& key);
/// As above, but for a task with equal_images_field().
std::shared_ptr<const Source> open_source(const TaskData& data, const std::shared_ptr<const Source>& fallback,
                                          const std::string& key);
/// As open_source(), but every sample stays a sample of its own.
std::shared_ptr<const Source> open_samples(const std::optional<config::ModuleSettings>& choice,
                                           const std::shared_ptr<const Source>& fallback, const std::string& key);

/// Numbers the images of a source from open_samples(), in the order in which of() is first called with them.
class ImageNumbers {
 public:
  explicit ImageNumbers(const Source& source) : ids_(source.image_ids()) {}
  /// Returns the number of a sample's image. Samples that name the same file have the same image.
  std::int64_t of(const EvaluationSample& sample);
  std::int64_t count() const { return std::ssize(known_); }

 private:
  std::vector<std::uint64_t> ids_;
  std::map<std::pair<std::uint64_t, std::int64_t>, std::int64_t> known_;  // key: the image's id or, if it has none, the sample
};

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

/// Returns the end of an error message that begins with "no sample". The end states what is required ("has a class label") and, if the
/// source can tell, where the source looks for the required field.
std::string lacking(const Source& source, const Required& required);

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
  bool reads_pixels = true;  // false: the body does not use pixels, so images with cached embeddings need no decoding

  /// Returns the number of samples that will be read, including unusable ones.
  std::int64_t total() const;
  /// Calls `body` with each batch. Adds to the result's `samples`, `skipped` and `equal_images`, and sets its `data`. Throws UserError if
  /// an embedding is not finite or no sample is usable.
  void run(TaskResult& result, const BatchBody& body) const;

 private:
  /// Returns the cache of embeddings, or null if there is none.
  EmbeddingTable* kept() const;
  TowerFeatures encode_images(const std::vector<EvaluationSample>& samples, EmbeddingTable* kept) const;
  TowerFeatures computed(const std::vector<const EvaluationSample*>& samples) const;
  void warn_of_equal_images(std::int64_t equal, std::int64_t used, const std::string& first) const;
};

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

/// Returns the features of a range of rows. Dense tensors share memory with the original.
TowerFeatures slice(const TowerFeatures& features, metrics::RowRange rows);

}  // namespace tessera
