#pragma once

#include <map>
#include <memory>
#include <string>

#include <tessera/io/safetensors.h>
#include <tessera/models/dual_encoder.h>

namespace tessera {

/// The parts of a published folder that our model does not need, kept so that the folder can be written again.
struct PublishedParts {
  std::string library;                                   // "transformers", "timm" or "open_clip"; empty: only tokenizer files
  std::map<std::string, std::string> files;              // configuration, tokenizer and preprocessing, by file name
  std::map<std::string, io::SafetensorsLayout> weights;  // layout of each weights file, by name
  std::map<std::string, at::Tensor> tensors;             // under the library's names: what our model lacks or changed
  /// Of each of those tensors that was changed on reading (resampled positions): the SHA-256 of what our unchanged model
  /// writes in its place.
  std::map<std::string, std::string> digests;
};

/// A safetensors file with everything that inference needs: weights under OpenCLIP's names, and in the metadata the
/// model's settings (encoders, activation, preprocessing), the tokenizer's settings and the vocabulary's bytes (with
/// their hash). The remaining parts of a published folder are stored under names that start with `published.`;
/// load_model_file() removes them from the weights.
struct ModelFile {
  ModelSettings model;
  config::ModuleSettings tokenizer;
  std::string vocabulary;                     // the tokenizer file's bytes; may be empty (unknown)
  std::map<std::string, at::Tensor> weights;  // model weights under OpenCLIP's names, `logit_scale`, `objective.*`
  std::map<std::string, std::string> extra;   // further metadata (step, run, resolved configuration)
  std::shared_ptr<const PublishedParts> published = {};  // the folder that the model came from; null: none
};

/// Whether a safetensors file contains our settings. Throws UserError naming the file if it is not safetensors or
/// damaged.
bool is_model_file(const std::string& path);

/// Throws UserError naming the file if it is not safetensors, has no settings (for a plain OpenCLIP file the message
/// says how to convert it with tessera-convert), or its vocabulary does not match its hash.
ModelFile load_model_file(const std::string& path);
void save_model_file(const std::string& path, const ModelFile& file);

/// Returns the model file of a path. The path may be the file itself, a checkpoint folder (with model.safetensors), the
/// file `latest` or `best` that names one, or a run folder or its folder `checkpoints` (then it is the checkpoint that
/// `latest`, a text file or a link, names). Throws UserError if there is none.
std::string find_model_file(const std::string& path);

/// Returns the checkpoint next to a text file `latest` or `best` that its first word names; empty for any other path.
std::string named_checkpoint(const std::string& file);

/// Builds a model and fills it with a file's weights, in evaluation mode. `origin` names the file in errors; weights of
/// the objective (`objective.*`, `logit_scale`, `logit_bias`) are skipped.
std::shared_ptr<DualEncoder> build_model(const ModelFile& file, const std::string& origin);

}  // namespace tessera
