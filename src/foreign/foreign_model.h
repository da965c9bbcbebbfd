#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/foreign/tensor_rule.h"
#include <tessera/models/checkpoint_options.h>
#include <tessera/models/model_file.h>

/// Models as other libraries publish them: a folder with weights and a configuration. docs/pretrained.md lists the
/// families.
namespace tessera {

/// The towers in a folder.
enum class FolderTowers { both, image, text };

/// A part of a published model that our models lack. `names` is a pattern for the names of the part's tensors (`**` matches any rest).
struct PartLeftOut {
  std::string names;
  std::string what;  // the part's name for the log, such as "the text decoder"
};

/// What a folder's configuration describes.
struct ForeignModel {
  std::string library;  // "transformers", "timm" or "OpenCLIP"
  ModelSettings model;
  bool image_tower = true;  // false: the folder has only a text tower, and model.image is meaningless
  std::vector<TensorRule> rules;
  std::vector<PartLeftOut> left_out;
  bool padding_is_text = false;      // whether the model's text tower attends to padding (SigLIP)
  bool tokenizer_in_folder = false;  // whether texts are tokenized with the folder's own files; false: with CLIP's vocabulary
  bool separator_is_padding = false;  // whether the separator of the folder's tokenizer is replaced by id 0 (OpenCLIP's strip_sep_token)
  std::string cleanup;               // how OpenCLIP cleans texts for the folder's tokenizer; empty: OpenCLIP does not clean them
};

/// Whether a path is a folder that transformers or timm wrote (recognized by its config.json) and not one of our runs.
bool is_foreign_folder(const std::string& path);

/// Reads settings and tensor names of a transformers or timm folder. Throws UserError naming the file and the key that
/// has no counterpart here.
ForeignModel read_foreign_folder(const std::string& folder);

/// Returns the weight files of a folder: the files that model.safetensors.index.json names, else model.safetensors, else the files that
/// pytorch_model.bin.index.json names, else pytorch_model.bin. Throws UserError naming a file that is missing.
std::vector<std::string> foreign_weight_files(const std::string& folder);

/// Loads the tensors of a folder's weight files (see foreign_weight_files()). Throws UserError naming a file that is
/// missing, damaged, or lacks a tensor that the index lists for it. `state` is the key of the state dict in PyTorch files.
NamedTensors load_foreign_weights(const std::string& folder, const std::string& state = "");

/// Returns the published tensors `theirs` under our names: one for each name in `own`, which holds the state of our model. Parts that our
/// model lacks are left out and reported in the log. Any other tensor without a counterpart keeps its published name, so that
/// DualEncoder::load_state() rejects it.
NamedTensors own_tensors(const ForeignModel& foreign, const NamedTensors& theirs, NamedTensors own,
                         const std::string& origin);

/// Loads the model settings and the weights of a folder. In the result, the tokenizer and the vocabulary are empty. Throws UserError if the
/// folder has only a text tower. Ignores options.architecture.
ModelFile load_foreign_model(const std::string& folder, const CheckpointOptions& options = {});

}  // namespace tessera
