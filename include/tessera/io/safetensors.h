#pragma once

#include <cstdint>
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

/// The header of a file as it stands there, and how long the data behind it are: enough to write the file again byte for byte.
struct SafetensorsLayout {
  std::string header;
  std::uint64_t data_bytes = 0;
};

/// Throws as load_safetensors().
SafetensorsLayout load_safetensors_layout(const std::string& path);

/// Whether these tensors fill the layout: each of its tensors is there with as many numbers, and its dtype holds them
/// exactly. Throws UserError naming `origin` for a header that is damaged.
bool fits_layout(const SafetensorsLayout& layout, const std::map<std::string, at::Tensor>& tensors, const std::string& origin);

/// Writes the tensors that a layout names, in its order, shapes and dtypes, behind its own header. They must fit it
/// (fits_layout). Otherwise as save_safetensors().
void save_safetensors_as(const SafetensorsLayout& layout, const std::string& path,
                         const std::map<std::string, at::Tensor>& tensors);

/// Tensors in the reference library's order and with its padding, so that a file of its own comes out byte for byte.
/// Writes aside, fsyncs and renames: the file at `path` is either the old or the new one, never a part. Throws UserError when
/// the disk is full or the folder is not writable; the old file survives.
void save_safetensors(const std::string& path, const std::map<std::string, at::Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace tessera::io
