#pragma once

#include <memory>
#include <string>

#include <tessera/data/tokenizers/tokenizer.h>
#include <tessera/models/model_file.h>

namespace tessera {

/// A model ready to embed images and texts.
struct InferenceModel {
  std::string path;  // the file itself
  ModelFile file;
  std::shared_ptr<DualEncoder> model;          // in evaluation mode, on `device`
  std::shared_ptr<const Tokenizer> tokenizer;  // null if the model has no text tower
  at::Device device = at::kCPU;
};

/// Parses auto (the GPU if there is one), cpu, cuda or cuda:N. Throws UserError for other names and for a GPU that does not
/// exist.
at::Device parse_device(const std::string& name);

/// Loads a model file, a checkpoint folder, a run folder, or an OpenCLIP checkpoint (load_open_clip_checkpoint), whose
/// `architecture` is read from open_clip_config.json unless it is given. Throws UserError if there is no model, if it is
/// broken, or if it has a text tower but no tokenizer. A published folder with an unreadable tokenizer still loads; its
/// tokenizer throws the reason at the first text.
InferenceModel load_for_inference(const std::string& path, const std::string& device = "auto",
                                  const std::string& architecture = "");

}  // namespace tessera
