#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <tessera/io/safetensors.h>
#include <tessera/models/dual_encoder.h>

namespace tessera {

/// The parts of a published folder that our model does not need, kept so that the folder can be written again.
struct PublishedParts {
  std::string library;                                   // "transformers", "timm" or "open_clip"; empty: there are only tokenizer files
  std::map<std::string, std::string> files;              // configuration, tokenizer and preprocessing, by file name
  std::map<std::string, io::SafetensorsLayout> weights;  // layout of each weights file, keyed by file name
  std::map<std::string, at::Tensor> tensors;  // published tensors that our model lacks or stores with other values; named as in the folder
  /// For each tensor in `tensors` that was changed on reading (resampled positions): the SHA-256 of the changed tensor in the published
  /// layout. If our model's tensor still has this hash when the folder is written again, the original is written in its place.
  std::map<std::string, std::string> digests;
};

/// A safetensors file with everything that inference needs: weights under OpenCLIP's names, and in the metadata the
/// model's settings (encoders, activation, preprocessing), the tokenizer's settings and the vocabulary's bytes (with
/// their hash). The remaining parts of a published folder are stored under names that start with `published.`;
/// load_model_file() removes them from the weights.
struct ModelFile {
  ModelSettings model;
  config::ModuleSettings tokenizer;
  std::string vocabulary;                     // the bytes of the tokenizer's file; empty if they are unknown
  std::map<std::string, at::Tensor> weights;  // model weights under OpenCLIP's names, `logit_scale`, `objective.*`
  std::map<std::string, std::string> extra;   // further metadata (step, run, resolved configuration)
  std::shared_ptr<const PublishedParts> published = {};  // other parts of the published folder that the model came from; null: none
};

/// The key in ModelFile::extra of the numbers of columns at which the embeddings were trained to be cut (Matryoshka), as in "64 128 256".
inline constexpr const char* kNestedWidths = "nested_widths";
/// Returns these numbers; none if the file names none. Throws UserError naming `origin` if they are not numbers.
std::vector<std::int64_t> nested_widths(const ModelFile& file, const std::string& origin);

/// Whether a safetensors file contains our settings. Throws UserError naming the file if it is damaged or not a safetensors file.
bool is_model_file(const std::string& path);

/// Throws UserError naming the file if it is not a safetensors file, if it has no settings (for a plain OpenCLIP file, the message says how
/// to convert it with tessera-convert), or if its vocabulary does not match its hash.
ModelFile load_model_file(const std::string& path);
void save_model_file(const std::string& path, const ModelFile& file);

/// Returns the model file that a path refers to. The path may be the file itself, a checkpoint folder (which contains model.safetensors),
/// or the file `latest` or `best` (which names a checkpoint folder). It may also be a run folder or its subfolder `checkpoints`; then the
/// text file or link `latest` in that folder names the checkpoint. Throws UserError if there is no model file.
std::string find_model_file(const std::string& path);

/// Returns the paths of the files in a folder whose names end as those of weights do: .safetensors, .pt, .pth, .bin.
std::vector<std::string> weight_files(const std::string& folder);

/// If `file` is a text file named `latest` or `best`, returns the path of the checkpoint in the same folder whose name is the first word of
/// the text. Otherwise returns an empty string.
std::string named_checkpoint(const std::string& file);

/// Builds a model in evaluation mode and fills it with a file's weights. `origin` names the file in errors; weights of
/// the objective (`objective.*`, `logit_scale`, `logit_bias`) are skipped.
std::shared_ptr<DualEncoder> build_model(const ModelFile& file, const std::string& origin);

}  // namespace tessera
