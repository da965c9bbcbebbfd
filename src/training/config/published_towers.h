#pragma once

#include "src/foreign/tensor_rule.h"
#include <tessera/config/node.h>
#include <tessera/models/model_file.h>
#include <tessera/training/config/config.h>

namespace tessera {

/// Returns the tree with `model.image.from` and `model.text.from` replaced by the settings of the towers in the published folders
/// that they name. Settings in the tree itself take precedence. Also takes over the preprocessing of the image tower's folder and,
/// if the tree has no tokenizer, the tokenizer of the text tower's folder. Sets `start.image` and `start.text` to the folders.
/// Throws UserError if a folder is not a published model or lacks the tower.
config::Node with_published_towers(config::Node tree);

/// Reads the tensors of a model of another library, a folder or OpenCLIP's file, and returns them with Tessera's names. `own` is the state
/// of the model that takes the tensors, and `state` the chosen state dict. See own_tensors() and open_clip_tensors().
NamedTensors published_tensors(const std::string& path, const NamedTensors& own, const std::string& state);

/// The settings that weights were trained with.
struct KnownSettings {
  ModelSettings model;
  std::optional<config::ModuleSettings> tokenizer;  // nullopt: unknown
};

/// Returns the settings of a tokenizer with all defaults; nullopt if it has no name or cannot be resolved.
std::optional<config::ModuleSettings> whole_tokenizer(const config::ModuleSettings& tokenizer);

/// Returns what the files of a model of another library, a folder or OpenCLIP's file, say about it; nullopt if they say nothing.
std::optional<KnownSettings> published_settings(const std::string& path, const std::string& state);

/// Returns the parts of the published folder that checkpoints carry along: its files, and the tensors that Tessera's model does not use.
/// With these parts, the trained model can be exported in the format of the library that the folder came from. If the run starts from two
/// folders, or from a folder with only a text tower, returns only the files of the text tower's folder, for its tokenizer. If it starts
/// from no published folder, returns null.
std::shared_ptr<const PublishedParts> start_parts(const StartSettings& start);

}  // namespace tessera
