#pragma once

#include <map>
#include <memory>
#include <string>

#include <tessera/data/tokenizers/tokenizer.h>
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

/// Loads a model file, a checkpoint folder, a run folder, or an OpenCLIP checkpoint (load_open_clip_checkpoint). The architecture
/// of an OpenCLIP checkpoint is read from open_clip_config.json if `architecture` is empty. Throws UserError if there is no model,
/// if it is broken, or if it has a text tower but no tokenizer. A published folder with an unreadable tokenizer still loads; the
/// tokenizer throws an error with the reason when it gets its first text.
InferenceModel load_for_inference(const std::string& path, const std::string& device = "auto",
                                  const std::string& architecture = "");

/// Builds the model of a model file in memory, on the CPU. `path` and `tokenizer_error` are as in InferenceModel. Throws UserError as
/// load_for_inference() does.
InferenceModel inference_model(ModelFile file, const std::string& path, const std::string& tokenizer_error = "");

/// Returns the learned factor of the cosines, which is the exponential of a weight that may have either of two names. If there is no such
/// weight, returns 100, CLIP's maximum.
double logit_scale_of(const std::map<std::string, at::Tensor>& weights);

}  // namespace tessera
