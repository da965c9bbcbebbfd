#pragma once

#include <map>
#include <string>
#include <vector>

#include <tessera/models/foreign/foreign_model.h>

/// Writing models in the form in which other libraries publish them: the inverse of foreign_model.h. docs/pretrained.md
/// lists what each library has a class for.
namespace tessera {

/// Whether a path is a folder written by transformers, timm or OpenCLIP or for them, and not a run of ours.
bool is_published_folder(const std::string& path);

/// Reads settings and names of such a folder. Throws UserError as that library's own reader here does.
ForeignModel read_published_folder(const std::string& folder);

/// Returns what our model does not represent of the folder that it came from: files, layouts of the weights, and
/// tensors that have no counterpart or were changed on reading. `path` is the folder or, for OpenCLIP, the weights
/// file; `ours` are the model's weights as they were read.
std::shared_ptr<const PublishedParts> published_parts(const std::string& path, const ForeignModel& foreign, const NamedTensors& ours);

/// Loads a published folder of any library: the model with everything needed to write the folder again, except
/// tokenizer and vocabulary, which belong to the data side.
ModelFile load_published_folder(const std::string& folder);

/// Where a model is written to, and what its folder contains besides weights and configuration.
struct PublishRequest {
  std::string library;                           // "transformers", "timm" or "open_clip"
  std::string folder;                            // must not exist, or be empty
  std::map<std::string, std::string> tokenizer;  // the tokenizer's files, if the model has none of its library's
  std::string origin;                            // names the model in messages
};

/// What was written: the library's class or architecture, and one line for each part that was left out.
struct PublishedFolder {
  std::string what;
  std::vector<std::string> notes;
};

/// Writes a model as a folder of another library: a configuration, the weights under the library's names, and the small
/// files that came with the model. An unchanged model that came from that library gives the same bytes. The folder is
/// written to a temporary place and read back; it appears only if it gives the model's settings and tensors. Throws
/// UserError naming the setting that the library has no class for.
PublishedFolder write_published(const ModelFile& file, const PublishRequest& request);

/// Writes OpenCLIP's own towers as a single weights file with open_clip_config.json next to it (for SPARO's code:
/// without). Returns lines for the user.
std::vector<std::string> write_open_clip_file(const ModelFile& file, const std::string& origin, const std::string& path);

}  // namespace tessera
