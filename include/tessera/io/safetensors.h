#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::io {

/// Named tensors and the file's string metadata.
struct TensorFile {
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

/// Reads a safetensors file. Before anything is allocated, the header is checked for wrong sizes, unknown dtypes, duplicate names, and
/// offsets that overlap, leave holes or are outside the file. Throws UserError naming the file (and the tensor).
TensorFile load_safetensors(const std::string& path);

/// Reads only the metadata, not the tensors. Throws like load_safetensors().
std::map<std::string, std::string> load_safetensors_metadata(const std::string& path);

/// The unchanged header of a file and the size of the data after it. Together with the tensors, they are enough to rewrite the file
/// byte for byte.
struct SafetensorsLayout {
  std::string header;
  std::uint64_t data_bytes = 0;
};

/// Reads only the header. Throws like load_safetensors().
SafetensorsLayout load_safetensors_layout(const std::string& path);

/// Returns true if `tensors` contains every tensor of the layout. The shapes must be equal apart from dimensions of size 1, and the
/// layout's dtype for a tensor must represent the tensor's values exactly. Throws UserError naming `origin` if the header is damaged.
bool fits_layout(const SafetensorsLayout& layout, const std::map<std::string, at::Tensor>& tensors, const std::string& origin);

/// Writes a file with the layout's header and the tensors that it names, in the header's order, shapes and dtypes. The tensors must fit the
/// layout (fits_layout). In all other respects, this function works like save_safetensors().
void save_safetensors_as(const SafetensorsLayout& layout, const std::string& path,
                         const std::map<std::string, at::Tensor>& tensors);

/// Writes tensors in the reference library's order and with its padding, so that a file written by that library is reproduced byte for
/// byte. Writes a temporary file, fsyncs and renames it, so that `path` is always either the old or the complete new file. Throws UserError
/// if the disk is full or the folder is not writable; the old file then stays unchanged.
void save_safetensors(const std::string& path, const std::map<std::string, at::Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace tessera::io
