#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::io {

/// Returns true if the file begins like a PyTorch file (.pt, .pth, .bin: a zip archive, or a pickle or tar archive from before
/// PyTorch 1.6) and not like a safetensors file. Returns false if it cannot be read.
bool is_pytorch_file(const std::string& path);

/// Returns the tensors of a model from a file written by torch.save or torch.jit.save, by name, after without_wrappers().
/// The file may be a state dict, a checkpoint that holds one, or a whole module. `state` is the key of the state dict in a checkpoint
/// ("model_ema", or "ema.module" one level deeper). If it is empty, `state_dict`, `model_state_dict` or `model` is read, else the only
/// state dict; if the checkpoint holds others, the log says which one was read. The optimizer and the arguments are not read, and no code
/// from the file is ever run.
///
/// Tensors keep the file's dtypes, sizes and strides, on the CPU; tensors that shared a storage still share one. Sizes are
/// checked against the file's actual content before anything is allocated.
///
/// Throws UserError naming the file (and the tensor) if it is damaged or truncated, holds no model or not the chosen one, or has sparse or
/// quantized tensors. For formats from before PyTorch 1.6 the message has three lines of Python that convert the file.
std::map<std::string, at::Tensor> load_pytorch_file(const std::string& path, const std::string& state = "");

/// Returns the tensors of a PyTorch or safetensors file, by name, after without_wrappers(). Throws UserError like the functions that read
/// these files, and if `state` is chosen for a safetensors file.
std::map<std::string, at::Tensor> load_tensors(const std::string& path, const std::string& state = "");

/// Returns the tensors without the prefixes that wrappers add to names: those of torch.compile, FSDP and activation checkpointing anywhere
/// in a name, and those of `outer` that all names have, such as `module.` of DistributedDataParallel and AveragedModel.
std::map<std::string, at::Tensor> without_wrappers(std::map<std::string, at::Tensor> tensors,
                                                   const std::vector<std::string_view>& outer = {"module."});

}  // namespace tessera::io
