#pragma once

#include <map>
#include <string>

#include <ATen/core/Tensor.h>

namespace tessera::io {

/// Returns true if the file begins like a PyTorch file (.pt, .pth, .bin: a zip archive, or a pickle or tar archive from before
/// PyTorch 1.6) and not like a safetensors file. Returns false if it cannot be read.
bool is_pytorch_file(const std::string& path);

/// Returns the tensors of a model from a file written by torch.save or torch.jit.save, by name, without the prefixes that
/// wrappers add (`module.`, `_orig_mod.`). The file may be a state dict, a checkpoint that holds one (`state_dict`,
/// `model_state_dict` or `model`, as open_clip_train writes them) or a whole module. The optimizer and the arguments are not
/// read, and no code from the file is ever run.
///
/// Tensors keep the file's dtypes, sizes and strides, on the CPU; tensors that shared a storage still share one. Sizes are
/// checked against the file's actual content before anything is allocated.
///
/// Throws UserError naming the file (and the tensor) if it is damaged or truncated, holds no model, or has sparse or quantized
/// tensors. For formats from before PyTorch 1.6 the message has three lines of Python that convert the file.
std::map<std::string, at::Tensor> load_pytorch_file(const std::string& path);

}  // namespace tessera::io
