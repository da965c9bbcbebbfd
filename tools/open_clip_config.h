#pragma once

#include <string>

#include <tessera/models/model_file.h>

/// What OpenCLIP is told of a model.
namespace tessera::tools {

/// Whether the model is of SPARO's code, whose file has a layout of its own and no configuration of OpenCLIP's.
bool is_sparo(const ModelSettings& model);

/// The text of open_clip_config.json: `model_cfg` and `preprocess_cfg`, as open_clip.create_model_and_transforms reads it
/// with the model name `local-dir:FOLDER`. Throws UserError naming `path` and what OpenCLIP cannot express.
std::string open_clip_config(const ModelFile& file, const std::string& path);

}  // namespace tessera::tools
