#pragma once

#include <optional>
#include <string>
#include <vector>

#include <tessera/models/foreign/tensor_rule.h>
#include <tessera/models/model_file.h>

/// Models as other libraries publish them: a folder with weights and a configuration. docs/pretrained.md lists the families.
namespace tessera {

/// A part of a model that ours lack, by the names of its tensors (`**` stands for any rest).
struct PartLeftOut {
  std::string names;
  std::string what;  // "the text decoder"
};

/// What a folder's configuration says.
struct ForeignModel {
  std::string library;  // "transformers", "timm" or "OpenCLIP"
  ModelSettings model;
  bool image_tower = true;  // false: the folder holds a text tower alone, and model.image says nothing
  std::vector<TensorRule> rules;
  std::vector<PartLeftOut> left_out;
  bool padding_is_text = false;      // its text tower attends to padding (SigLIP)
  bool tokenizer_in_folder = false;  // texts are read by files of the folder, and not by CLIP's vocabulary
  bool separator_is_padding = false;  // that tokenizer's separator becomes the id 0 (OpenCLIP's strip_sep_token)
  std::string cleanup;               // what OpenCLIP does to texts before such a tokenizer; empty: nothing
};

/// Whether a path is a folder that transformers or timm wrote (config.json with its marks) and no run of ours.
bool is_foreign_folder(const std::string& path);

/// Settings and names for a folder of transformers or timm. Throws UserError naming the file and the key that has no
/// counterpart here.
ForeignModel read_foreign_folder(const std::string& folder);

/// The files of a folder's weights: those that model.safetensors.index.json names, model.safetensors, those of
/// pytorch_model.bin.index.json, or pytorch_model.bin. Throws UserError naming a file that is missing.
std::vector<std::string> foreign_weight_files(const std::string& folder);

/// The tensors of those files. Throws UserError naming the file: missing, damaged, without a tensor that the index says it holds.
NamedTensors load_foreign_weights(const std::string& folder);

/// Their tensors under our names, as far as `own`, a model's state, has them. Parts that ours lack are named in the log and
/// left out; what else is left over keeps its name, so that DualEncoder::load_state() refuses it.
NamedTensors own_tensors(const ForeignModel& foreign, const NamedTensors& theirs, NamedTensors own,
                         const std::string& origin);

/// A whole folder; without tokenizer and vocabulary, which belong to the data's side. Throws UserError for a folder that holds
/// a text tower alone.
ModelFile load_foreign_model(const std::string& folder);

}  // namespace tessera
