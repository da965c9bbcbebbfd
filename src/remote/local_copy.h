#pragma once

#include <string>
#include <vector>

#include <tessera/config/file_path.h>

namespace tessera::remote {

/// Which files of a remote folder local_copy() fetches.
enum class Wanted {
  model,       // model_files()
  everything,  // all files, for example those of a checkpoint from which a run continues
};

/// Returns the local path of a model: `name` itself if it is local. If it is remote, fetches the model through the cache of this process
/// (store()) and returns a folder in the cache, or a file in such a folder, in which the files have their own names. `name` is
///  - a file, such as s3://bucket/model.safetensors or https://host/model.safetensors. An open_clip_config.json beside a file in a bucket
///    is fetched, too, with the other files that describe the model.
///  - a folder of a bucket, or of a repository of the Hugging Face Hub (hf://OWNER/NAME): that of a published model, a checkpoint, a run or
///    its subfolder `checkpoints`. The newest checkpoint of a run is the one that the object `latest` names, and its best one the one that
///    `best` names, as in find_model_file().
/// Of repositories of the Hub, pickled weights are fetched only if the file is named; a transformers model then becomes a folder with these
/// weights. Each call asks for the current version, but repositories stay at the commit that the process has seen first. The files stay in
/// the cache until the process ends, or until it has fetched 16 other models. Throws UserError naming the address.
std::string local_copy(const std::string& name, Wanted wanted = Wanted::model);

/// Does the same with a path of the settings. If a local path does not exist, throws the error of config::require(). Errors name the place
/// of the setting.
std::string local_copy_of(const config::FilePath& path);

/// Returns those of the files of a folder that a model needs: of a checkpoint, model.safetensors; of a published model, its descriptions
/// (.json, .txt, ...) and its weights, those in .safetensors files if there are any.
std::vector<std::string> model_files(const std::vector<std::string>& names);

}  // namespace tessera::remote
