#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::io {

/// Named tensors with the file's string metadata.
struct TensorFile {
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

/// Reads a safetensors file. The header is checked before anything is allocated: sizes, offsets that overlap, leave holes or
/// point outside the file, unknown dtypes, duplicate names. Throws UserError naming the file (and the tensor).
TensorFile load_safetensors(const std::string& path);

/// The metadata alone; of the tensors nothing is read. Throws as load_safetensors().
std::map<std::string, std::string> load_safetensors_metadata(const std::string& path);

/// Writes aside, fsyncs and renames: the file at `path` is either the old or the new one, never a part. Throws UserError when
/// the disk is full or the folder is not writable; the old file survives.
void save_safetensors(const std::string& path, const std::map<std::string, at::Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace tessera::io
