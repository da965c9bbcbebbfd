#pragma once

#include <map>
#include <memory>
#include <string>

#include <tessera/io/safetensors.h>
#include <tessera/models/dual_encoder.h>

namespace tessera {

/// What a published folder holds beside what a model of ours needs, by which the folder can be written again.
struct PublishedParts {
  std::string library;                                   // "transformers", "timm" or "open_clip"; empty: tokenizer files alone
  std::map<std::string, std::string> files;              // its configuration, tokenizer and preprocessing, by file name
  std::map<std::string, io::SafetensorsLayout> weights;  // of each of its files of weights, by name
  std::map<std::string, at::Tensor> tensors;             // under the library's names: those that our model does not hold as they are
  std::map<std::string, std::string> digests;            // of such a tensor, if it was changed on reading (resampled positions): the
                                                         // SHA-256 of what our unchanged model gives in its place
};

/// A safetensors file that holds all that inference needs: weights under OpenCLIP's names, and in the metadata the
/// model's settings (encoders, activation, preprocessing), the tokenizer's settings and vocabulary bytes (with their
/// hash). What is left of a published folder lies in it under names that begin with `published.`, which load_model_file() takes
/// out of the weights.
struct ModelFile {
  ModelSettings model;
  config::ModuleSettings tokenizer;
  std::string vocabulary;                     // the tokenizer file's bytes; may be empty (unknown)
  std::map<std::string, at::Tensor> weights;  // model weights under OpenCLIP's names, `logit_scale`, `objective.*`
  std::map<std::string, std::string> extra;   // further metadata (step, run, resolved configuration)
  std::shared_ptr<const PublishedParts> published = {};  // of the folder that the model came from; null: none
};

/// Whether a safetensors file holds settings of ours. Throws UserError naming the file if it is none or damaged.
bool is_model_file(const std::string& path);

/// Throws UserError naming the file: not safetensors, no settings in it (a plain OpenCLIP file: says how to convert it
/// with tessera-convert), vocabulary whose hash disagrees.
ModelFile load_model_file(const std::string& path);
void save_model_file(const std::string& path, const ModelFile& file);

/// Where the model of a run lies: a file itself, a checkpoint folder (model.safetensors in it), the file `latest` or `best`
/// that names one, or a run folder or its folder `checkpoints` (the checkpoint that `latest`, a text file or a link,
/// names). Throws UserError when there is none.
std::string find_model_file(const std::string& path);

/// The checkpoint that a text file `latest` or `best` names by its first word, beside it; empty for any other path.
std::string named_checkpoint(const std::string& file);

/// A model built and filled from a file's weights, in evaluation mode. `origin` names the file in errors; weights of
/// the objective (`objective.*`, `logit_scale`, `logit_bias`) are passed over.
std::shared_ptr<DualEncoder> build_model(const ModelFile& file, const std::string& origin);

}  // namespace tessera
