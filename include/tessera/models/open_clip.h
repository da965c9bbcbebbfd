#pragma once

#include <map>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include <tessera/models/foreign/foreign_model.h>

/// OpenCLIP's checkpoints: weights as safetensors or PyTorch files, and open_clip_config.json beside them, which says the
/// architecture and how pictures are prepared.
namespace tessera {

/// Whether a path holds OpenCLIP's weights and not a model of ours: a PyTorch file, a .safetensors file without our
/// settings, or a folder with open_clip_config.json that is no run of ours. Throws UserError for a damaged safetensors file.
bool is_open_clip_checkpoint(const std::string& path);

/// The weights that a path means: a file itself; of a folder open_clip_model.safetensors, open_clip_pytorch_model.bin, or the
/// only weights in it. Throws UserError naming the folder.
std::string find_open_clip_weights(const std::string& path);

/// Whatever inference needs of a checkpoint: the model that open_clip_config.json beside the weights describes (or, given its
/// name, one of architecture()), CLIP's tokenizer and its vocabulary, which ships with Tessera. Throws UserError: no
/// configuration, one that our models have no counterpart of (the key is named), another tokenizer than CLIP's.
ModelFile load_open_clip_checkpoint(const std::string& path, const std::string& architecture = "");

/// OpenCLIP's own tokenizer before such a text tower: CLIP's byte pairs behind all of ftfy, as many tokens as the tower takes, and
/// padding as text where its attention is not causal. Without the vocabulary's file.
config::ModuleSettings clip_tokenizer(const TowerSettings& text);

/// The settings of a checkpoint's model: those of architecture() where a name is given, or what open_clip_config.json beside
/// the weights says. Throws as load_open_clip_checkpoint().
ModelSettings open_clip_settings(const std::string& path, const std::string& architecture = "");

/// The settings of one of OpenAI's TorchScript archives, which follow from its tensors' shapes: ViT or ResNet with quick GELU. None for
/// other files, which lack the three numbers that OpenAI's classes keep (input_resolution, context_length, vocab_size). Throws UserError
/// naming `origin` and the tensor that is missing or has another shape.
std::optional<ModelSettings> openai_model(const NamedTensors& tensors, const std::string& origin);

/// The tensors of a PyTorch or safetensors file, under the file's names. Throws UserError naming the file, and for a file of
/// Hugging Face's CLIPModel.
std::map<std::string, at::Tensor> load_weights(const std::string& path);

/// The tensors of a file as DualEncoder::load_state() takes them, given the model's own state: without what is no weight.
/// Throws as load_weights().
std::map<std::string, at::Tensor> open_clip_tensors(const std::string& weights,
                                                    const std::map<std::string, at::Tensor>& own);

/// The weights of a file under our names, resampled to the size of the model, and nothing else of the file. The tokenizer is
/// CLIP's, with its vocabulary where the text tower has as many entries. Throws UserError naming the file and the tensor.
ModelFile from_open_clip(const std::string& weights, const ModelSettings& model);

/// The same of tensors that bear our names already. `origin` names the file in messages.
ModelFile from_named_tensors(const std::map<std::string, at::Tensor>& tensors, const ModelSettings& model,
                             const std::string& origin);

/// What open_clip_config.json (`text`) says of model and preprocessing. Throws UserError naming `path` and the key: not JSON,
/// a value of the wrong type, or something that our models have no counterpart of.
ModelSettings model_of_open_clip_config(const std::string& text, const std::string& path);

/// The same with what is needed to read its tensors.
ForeignModel open_clip_model(const std::string& text, const std::string& path);

/// Whether the model is of SPARO's code, whose file has a layout of its own and no configuration of OpenCLIP's.
bool is_sparo(const ModelSettings& model);

/// The text of open_clip_config.json: `model_cfg` and `preprocess_cfg`, as open_clip.create_model_and_transforms reads it
/// with the model name `local-dir:FOLDER`. Throws UserError naming `path` and what OpenCLIP cannot express.
std::string open_clip_config(const ModelFile& file, const std::string& path);

}  // namespace tessera
