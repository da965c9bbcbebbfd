#pragma once

#include <map>
#include <string>
#include <vector>

#include <tessera/models/foreign/foreign_model.h>

/// Models as other libraries publish them, written: the way back from foreign_model.h. docs/pretrained.md says what each library
/// has a class for.
namespace tessera {

/// Whether a path is a folder that transformers, timm or OpenCLIP wrote, or its users, and no run of ours.
bool is_published_folder(const std::string& path);

/// Settings and names of such a folder. Throws UserError as the library's own reader.
ForeignModel read_published_folder(const std::string& folder);

/// What a model of ours does not hold of the folder that it came from: files, layouts of the weights, and tensors that have no
/// place or were changed on reading. `path` is the folder or, of OpenCLIP, the file of weights; `ours` are the model's weights
/// as they were read.
std::shared_ptr<const PublishedParts> published_parts(const std::string& path, const ForeignModel& foreign, const NamedTensors& ours);

/// A folder of any library as published: the model with all that is needed to write it again, but for tokenizer and vocabulary,
/// which belong to the data's side.
ModelFile load_published_folder(const std::string& folder);

/// Where a model is written to, and what its folder gets beside weights and configuration.
struct PublishRequest {
  std::string library;                           // "transformers", "timm" or "open_clip"
  std::string folder;                            // must not be there, or be empty
  std::map<std::string, std::string> tokenizer;  // files of the tokenizer, where the model carries none of its library's
  std::string origin;                            // names the model in messages
};

/// What was written: the library's class or architecture, and what stayed behind, a line each.
struct PublishedFolder {
  std::string what;
  std::vector<std::string> notes;
};

/// Writes a model as a folder of another library: a configuration, the weights under the library's names, and the small files
/// that the model carries. A model that came from that library and is as it was gives the same bytes. The folder is made aside
/// and read again; it appears if it says the model's settings and holds its tensors. Throws UserError naming the setting that
/// the library has no class for.
PublishedFolder write_published(const ModelFile& file, const PublishRequest& request);

/// The same for OpenCLIP's own towers as a single file of weights, open_clip_config.json beside it (SPARO's code: without).
/// Returns lines for the user.
std::vector<std::string> write_open_clip_file(const ModelFile& file, const std::string& origin, const std::string& path);

}  // namespace tessera
