#pragma once

#include <memory>
#include <string>

#include <tessera/data/tokenizers/tokenizer.h>
#include <tessera/models/model_file.h>

namespace tessera {

/// A model ready to embed pictures and texts.
struct InferenceModel {
  std::string path;  // the file itself
  ModelFile file;
  std::shared_ptr<DualEncoder> model;          // in evaluation mode, on `device`
  std::shared_ptr<const Tokenizer> tokenizer;  // null: the model has no text tower
  at::Device device = at::kCPU;
};

/// auto (the GPU when there is one), cpu, cuda or cuda:N. Throws UserError for other names and for a GPU that is not
/// there.
at::Device parse_device(const std::string& name);

/// Loads a model file, checkpoint folder or run folder, or a checkpoint of OpenCLIP's (load_open_clip_checkpoint), whose
/// `architecture` is open_clip_config.json's unless it is named. Throws UserError: nothing there, broken, or with a text
/// tower but no tokenizer. A published folder whose tokenizer cannot be read is loaded: its tokenizer throws the reason when a
/// text comes.
InferenceModel load_for_inference(const std::string& path, const std::string& device = "auto",
                                  const std::string& architecture = "");

}  // namespace tessera
