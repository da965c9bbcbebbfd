#pragma once

#include <string>

#include <tessera/io/safetensors.h>
#include <tessera/models/model_file.h>

namespace tessera {

/// Returns what save_model_file() writes: the tensors, which share the model file's memory, and the metadata.
io::TensorFile stored_form(const ModelFile& file);

/// The inverse of stored_form(), with the errors of load_model_file(), which name `path`.
ModelFile from_stored_form(io::TensorFile stored, const std::string& path);

}  // namespace tessera
