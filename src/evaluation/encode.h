#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <tessera/data/loading/loader.h>
#include <tessera/evaluation/task.h>
#include <tessera/evaluation/tasks/task_settings.h>

namespace tessera {

/// The source that a task names, or the run's. `key` is its path in the settings ("zero_shot.source"). Throws UserError
/// when there is neither.
std::shared_ptr<const Source> open_source(const std::optional<config::ModuleSettings>& choice,
                                          const std::shared_ptr<const Source>& fallback, const std::string& key);

/// The classes a task asks about: those of its `classes` setting, or the source's. Throws UserError when there are none;
/// `task` is its registered name.
std::vector<std::string> class_names_for(const TextList& classes, const Source& source, const std::string& task);

using BatchBody = std::function<void(const std::vector<EvaluationSample>& samples, const TowerFeatures& features)>;

/// One pass of a source through the image tower, in order. Adds to the result's samples and skipped, and sets its data.
/// Throws UserError when an embedding is not finite, or when no sample could be read.
void encode_source(DualEncoder& model, const std::shared_ptr<const Source>& source, const EvaluationContext& context,
                   std::int64_t max_samples, bool dense, TaskResult& result, const BatchBody& body);

/// Embeddings of texts, [M, D] float32 on the CPU. Throws UserError when one is not finite.
at::Tensor encode_texts(DualEncoder& model, const Tokenizer& tokenizer, const std::vector<std::string>& texts,
                        const EvaluationContext& context);

/// Prompts of some classes: every template filled with every class name.
struct ClassPrompts {
  at::Tensor features;  // [classes * templates, D]
  at::Tensor owner;     // [classes * templates] int64 in 0..classes-1
};
ClassPrompts encode_prompts(DualEncoder& model, const Tokenizer& tokenizer, const std::vector<std::string>& names,
                            const TextList& templates, const EvaluationContext& context);

/// Image embeddings and labels of the labeled samples of a source.
struct LabeledFeatures {
  at::Tensor features;                // [N, D] float32, CPU
  at::Tensor labels;                  // [N] int64
  std::vector<std::int64_t> indices;  // in the source
};
/// Samples without a label are counted as skipped, `no_label`. Throws UserError when none has one.
LabeledFeatures encode_labeled(DualEncoder& model, const std::shared_ptr<const Source>& source,
                                 const EvaluationContext& context, std::int64_t max_samples, TaskResult& result);

/// uint8 [3, H, W] to a picture.
Image to_image(const at::Tensor& pixels);
/// One picture of a source as the model sees it; read again, so that no pass has to keep pictures.
Image model_view(const Source& source, std::int64_t index, const Preprocessing& preprocessing);

/// Pictures that a task shows in the report.
inline constexpr std::int64_t kExamplePictures = 12;

/// At most `wanted` numbers out of 0..count-1, evenly spread.
std::vector<std::int64_t> spread(std::int64_t count, std::int64_t wanted);

}  // namespace tessera
