#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include <tessera/data/tokenizers/tokenizer.h>
#include <tessera/models/checkpoint_options.h>
#include <tessera/models/model_file.h>

namespace tessera {

/// A model that is ready to embed images and texts.
struct InferenceModel {
  std::string path;  // path of the model file
  ModelFile file;
  std::shared_ptr<DualEncoder> model;          // in evaluation mode, on `device`
  std::shared_ptr<const Tokenizer> tokenizer;  // null if the model has no text tower
  std::string tokenizer_error;                 // why the tokenizer of a published folder cannot be read; empty: it can
  at::Device device = at::kCPU;
};

/// Loads a model file, a checkpoint folder, a run folder, or an OpenCLIP checkpoint (open_clip_settings, load_open_clip_checkpoint), local or
/// in a store (src/remote/local_copy.h). Throws UserError if there is no model, if it is broken, if it has a text tower but no tokenizer, or if an option means nothing for it. A
/// published folder with an unreadable tokenizer still loads; the tokenizer throws an error with the reason when it gets its first text.
InferenceModel load_for_inference(const std::string& path, const std::string& device = "auto", const CheckpointOptions& options = {});

/// Builds the model of a model file in memory, on the CPU. `path` and `tokenizer_error` are as in InferenceModel. Throws UserError as
/// load_for_inference() does.
InferenceModel inference_model(ModelFile file, const std::string& path, const std::string& tokenizer_error = "");

/// The factor of the cosines that is used if no other is known: CLIP's maximum.
inline constexpr double kUsualScale = 100;

/// Returns the learned factor of the cosines, whose logarithm (or the factor itself, see log_of_scale()) is a weight that may have either
/// of two names. Returns nullopt if there is no such weight, or if it is not finite.
std::optional<double> stored_logit_scale(const std::map<std::string, at::Tensor>& weights);
/// Returns stored_logit_scale(), or kUsualScale if there is none.
double logit_scale_of(const std::map<std::string, at::Tensor>& weights);

}  // namespace tessera
