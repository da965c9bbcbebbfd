#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/foreign/foreign_model.h"

/// Functions that write models in the form in which other libraries publish them, the inverse of foreign_model.h. docs/pretrained.md lists
/// the models that each library has a class for.
namespace tessera {

/// Whether a path is a folder in the format of transformers, timm or OpenCLIP, and not one of our runs.
bool is_published_folder(const std::string& path);

/// Reads settings and tensor names of a folder in one of these formats. Throws like the function that reads that format,
/// read_foreign_folder() or open_clip_model().
ForeignModel read_published_folder(const std::string& folder);

/// Returns a published folder's files of configuration, preprocessing and tokenizer, by name. Loading the folder again needs only these
/// files and the weights.
std::map<std::string, std::string> small_files(const std::string& folder);

/// Returns the parts of a published folder that our model does not represent: files, layouts of the weights, and
/// tensors that have no counterpart or were changed on reading. `path` is the folder or, for OpenCLIP, the weights
/// file; `ours` are the model's weights as they were read, and `state` the chosen state dict.
std::shared_ptr<const PublishedParts> published_parts(const std::string& path, const ForeignModel& foreign, const NamedTensors& ours,
                                                      const std::string& state = "");

/// Loads the model from a folder in the format of transformers, timm or OpenCLIP. The result has everything needed to write the folder
/// again, except the tokenizer and the vocabulary, which belong to the data side.
ModelFile load_published_folder(const std::string& folder, const CheckpointOptions& options = {});

/// Returns the SHA-256 of a tensor's bytes as they are stored in a file.
std::string compute_digest(const at::Tensor& tensor);

/// Where a model is written to, and what its folder contains besides weights and configuration.
struct PublishRequest {
  std::string library;                           // "transformers", "timm" or "open_clip"
  std::string folder;                            // must not exist yet or must be empty
  std::map<std::string, std::string> tokenizer;  // the tokenizer's files, used if none came with the model
  std::string origin;                            // name of the model in messages
  FolderTowers towers = FolderTowers::both;                  // which towers to write; timm's models are always image towers
};

/// The result of writing: the library's class or architecture, and one line for each part that was left out.
struct PublishedFolder {
  std::string what;
  std::vector<std::string> notes;
};

/// Writes a model as a folder of another library: a configuration, the weights under the library's names, and the small files that came
/// with the model. A model that came from that library and was not changed is written byte for byte as it was. The folder is first written
/// to a temporary place, and moved to its final place only if reading it back returns the model's settings and tensors. If the library has
/// no class for the model, throws UserError naming the setting that does not fit. A tower alone is written without its projection if the
/// library has the class only without one.
PublishedFolder write_published(const ModelFile& file, const PublishRequest& request);

/// Writes a model as a single weights file, with open_clip_config.json next to it. Throws UserError if OpenCLIP's own towers cannot
/// represent the model. A model in the layout of SPARO's code gets no open_clip_config.json. Returns lines to print for the user.
std::vector<std::string> write_open_clip_file(const ModelFile& file, const std::string& origin, const std::string& path);

}  // namespace tessera
