#pragma once

#include <map>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include <tessera/models/foreign/foreign_model.h>

/// OpenCLIP's checkpoints: weights as safetensors or PyTorch files, next to open_clip_config.json, which describes the
/// architecture and the image preprocessing.
namespace tessera {

/// Whether a path has OpenCLIP's weights and not a model of ours: a PyTorch file, a .safetensors file without our
/// settings, or a folder with open_clip_config.json that is not a run of ours. Throws UserError for a damaged
/// safetensors file.
bool is_open_clip_checkpoint(const std::string& path);

/// Returns the weights file of a path: the file itself, or in a folder open_clip_model.safetensors,
/// open_clip_pytorch_model.bin, or the only weights file. Throws UserError naming the folder.
std::string find_open_clip_weights(const std::string& path);

/// Loads everything that inference needs from a checkpoint: the model that open_clip_config.json next to the weights
/// describes (or that of architecture(), if a name is given), CLIP's tokenizer and its vocabulary, which ships with
/// Tessera. Throws UserError if there is no configuration, if our models have no counterpart of it (naming the key), or
/// if the tokenizer is not CLIP's.
ModelFile load_open_clip_checkpoint(const std::string& path, const std::string& architecture = "");

/// Returns the settings of OpenCLIP's own tokenizer for such a text tower: CLIP's byte pairs after full ftfy cleaning,
/// as many tokens as the tower accepts, and with padding treated as text if its attention is not causal. Without the
/// vocabulary's file.
config::ModuleSettings clip_tokenizer(const TowerSettings& text);

/// Returns the settings of a checkpoint's model: those of architecture() if a name is given, else those of
/// open_clip_config.json next to the weights. Throws as load_open_clip_checkpoint() does.
ModelSettings open_clip_settings(const std::string& path, const std::string& architecture = "");

/// Returns the settings of one of OpenAI's TorchScript archives, derived from its tensors' shapes: ViT or ResNet with
/// quick GELU. Returns nullopt for other files, which lack the three numbers that OpenAI's classes store
/// (input_resolution, context_length, vocab_size). Throws UserError naming `origin` and the tensor that is missing or
/// has another shape.
std::optional<ModelSettings> openai_model(const NamedTensors& tensors, const std::string& origin);

/// Loads the tensors of a PyTorch or safetensors file, under the file's names. Throws UserError naming the file, also
/// for a file of Hugging Face's CLIPModel.
std::map<std::string, at::Tensor> load_weights(const std::string& path);

/// Loads a file's tensors as DualEncoder::load_state() takes them, given the model's own state; drops entries that are
/// not weights. Throws as load_weights() does.
std::map<std::string, at::Tensor> open_clip_tensors(const std::string& weights,
                                                    const std::map<std::string, at::Tensor>& own);

/// Loads a file's weights under our names, resampled to the model's size, and nothing else of the file. The tokenizer
/// is CLIP's, with its vocabulary if the text tower has as many entries. Throws UserError naming the file and the
/// tensor.
ModelFile from_open_clip(const std::string& weights, const ModelSettings& model);

/// The same for tensors that already have our names. `origin` names the file in messages.
ModelFile from_named_tensors(const std::map<std::string, at::Tensor>& tensors, const ModelSettings& model,
                             const std::string& origin);

/// Returns the model and preprocessing that open_clip_config.json (`text`) describes. Throws UserError naming `path`
/// and the key if it is not JSON, has a value of the wrong type, or something that our models have no counterpart of.
ModelSettings model_of_open_clip_config(const std::string& text, const std::string& path);

/// The same, with what is needed to read the model's tensors.
ForeignModel open_clip_model(const std::string& text, const std::string& path);

/// Whether the model is one of SPARO's code, which has its own file layout and no OpenCLIP configuration.
bool is_sparo(const ModelSettings& model);

/// Returns the text of open_clip_config.json: `model_cfg` and `preprocess_cfg`, as
/// open_clip.create_model_and_transforms reads it with the model name `local-dir:FOLDER`. Throws UserError naming
/// `path` and what OpenCLIP cannot express.
std::string open_clip_config(const ModelFile& file, const std::string& path);

}  // namespace tessera
