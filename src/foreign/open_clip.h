#pragma once

#include <map>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "src/foreign/foreign_model.h"
#include <tessera/models/checkpoint_options.h>

/// OpenCLIP's checkpoints: weights as safetensors or PyTorch files, next to open_clip_config.json, which describes the
/// architecture and the image preprocessing.
namespace tessera {

/// Whether a path contains OpenCLIP's weights and not one of our models: a PyTorch file, a .safetensors file without
/// our settings, or a folder that has open_clip_config.json and is not one of our runs. Throws UserError for a damaged
/// safetensors file.
bool is_open_clip_checkpoint(const std::string& path);

/// If `path` is a file, returns `path`. If it is a folder, returns its open_clip_model.safetensors, else its open_clip_pytorch_model.bin,
/// else its only weights file. Throws UserError naming the folder if it has no weights file or several.
std::string find_open_clip_weights(const std::string& path);

/// Returns what is known about the model of a weights file: open_clip_config.json next to it, else the params.txt of the run of
/// open_clip_train that wrote it (next to it or one folder above, as for NAME/checkpoints/epoch_1.pt), else the tensors of one of OpenAI's
/// archives. Returns nullopt if there is none of these. Throws UserError if the description has something that our models lack (the message
/// names the key).
std::optional<ForeignModel> described_open_clip(const std::string& weights, const std::string& state = "");

/// Does the same, but a description that our models cannot follow counts as none.
std::optional<ForeignModel> usable_description(const std::string& weights, const std::string& state = "");

/// Returns the description of a checkpoint's model. If no architecture is chosen, it is that of described_open_clip(). Otherwise it is the
/// named architecture or, if params.txt names the same one, the model of that run; the log warns of settings that differ from
/// described_open_clip(). Throws UserError if there is no description, or if it has something that our models lack.
ForeignModel open_clip_settings(const std::string& path, const CheckpointOptions& options = {});

/// Loads from a checkpoint everything that inference needs: the model, CLIP's tokenizer, and the tokenizer's vocabulary, which ships with
/// Tessera. `foreign` is what open_clip_settings() returned. If it names a tokenizer of its own, the result has no tokenizer. Throws
/// UserError if it names none and the text tower has no room for CLIP's tokens.
ModelFile load_open_clip_checkpoint(const std::string& weights, const ForeignModel& foreign, const std::string& state = "");

/// Returns the settings of OpenCLIP's own tokenizer for a text tower, without the vocabulary's file. The tokenizer uses CLIP's byte pairs
/// after full ftfy cleaning, and its context length is the number of tokens that the tower accepts. Padding is treated as text if the
/// tower's attention is not causal.
config::ModuleSettings clip_tokenizer(const TowerSettings& text);

/// Returns the settings of a model from one of OpenAI's TorchScript archives, derived from the tensors' shapes. The image tower is a ViT or
/// a ResNet; all transformers use quick GELU. These archives store the numbers input_resolution, context_length and vocab_size as tensors.
/// If one of these three tensors is missing, returns nullopt. If any other tensor is missing or does not have the expected shape, throws
/// UserError naming `origin` and the tensor.
std::optional<ModelSettings> openai_model(const NamedTensors& tensors, const std::string& origin);

/// Loads the tensors of a PyTorch or safetensors file, under the file's names. Throws UserError naming the file if it
/// cannot be read or contains Hugging Face's CLIPModel.
std::map<std::string, at::Tensor> load_weights(const std::string& path, const std::string& state = "");

/// Loads a file's tensors in the form that DualEncoder::load_state() takes. `own` is the model's state, and `foreign` describes the names
/// in the file. Drops entries that are not weights. Throws as load_weights() does.
std::map<std::string, at::Tensor> open_clip_tensors(const std::string& weights, const std::map<std::string, at::Tensor>& own,
                                                    const ForeignModel& foreign, const std::string& state = "");

/// Reads the weights in the file `weights` and returns a model file that contains them under our names. Position embeddings are resampled
/// to the model's size. Nothing else in the file `weights` is used. The tokenizer is CLIP's, unless `foreign` names another one; the result
/// then has none. It also has none if the text tower's token table has too few entries for CLIP's vocabulary. If a weight is missing, left
/// over or of the wrong shape, throws UserError naming the file and the tensor.
ModelFile from_open_clip(const std::string& weights, const ForeignModel& foreign, const std::string& state = "");
/// Does the same for a model with these settings, the names that described_open_clip() describes, and CLIP's tokenizer.
ModelFile from_open_clip(const std::string& weights, const ModelSettings& model, const std::string& state = "");

/// Does the same as from_open_clip() for tensors that already have our names. Keeps an objective's tensors (`objective.*`). `origin` names
/// the file in messages. For `resampling`, see DualEncoder::load_state().
ModelFile from_named_tensors(const std::map<std::string, at::Tensor>& tensors, const ModelSettings& model,
                             const std::string& origin, log::Level resampling = log::Level::warning);

/// Returns the model and preprocessing that open_clip_config.json (`text`) describes, and what is needed to read the model's tensors.
/// Throws UserError naming `path` and the key if it is not JSON, has a value of the wrong type, or describes something that our models
/// lack.
ForeignModel open_clip_model(const std::string& text, const std::string& path);

/// Whether the model follows SPARO's code, which has its own file layout and no OpenCLIP configuration.
bool is_sparo(const ModelSettings& model);

/// Returns the text of open_clip_config.json, with `model_cfg` and `preprocess_cfg`. open_clip.create_model_and_transforms reads this file
/// for the model name `local-dir:FOLDER`. If OpenCLIP cannot express the model, throws UserError naming `path` and the unsupported part.
std::string open_clip_config(const ModelFile& file, const std::string& path);

}  // namespace tessera
