#pragma once

#include <map>
#include <string>

#include <ATen/core/Tensor.h>

namespace tessera::io {

/// Whether a file begins as PyTorch's do (.pt, .pth, .bin: a zip archive, or the pickles and tar archives of before 1.6)
/// and not as a safetensors file. False where it cannot be read.
bool is_pytorch_file(const std::string& path);

/// The tensors of a model in a file of torch.save or torch.jit.save, by name, without what wrappers put before the names
/// (`module.`, `_orig_mod.`). The file may be a state dict, a checkpoint that holds one (`state_dict`,
/// `model_state_dict` or `model`, as open_clip_train writes them) or a whole module. Of optimizer and arguments nothing
/// is read, and no code is run whatever the file says.
///
/// Tensors have the file's dtypes, sizes and strides, on the CPU; those that shared a storage do so here. Sizes are held
/// against what the file holds before anything is allocated.
///
/// Throws UserError naming the file (and the tensor): damaged, truncated, no model in it, sparse or quantized tensors; for
/// the formats of before PyTorch 1.6 it says in three lines of Python how to write the file anew.
std::map<std::string, at::Tensor> load_pytorch_file(const std::string& path);

}  // namespace tessera::io
