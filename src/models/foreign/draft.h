#pragma once

#include <nlohmann/json.hpp>

#include <tessera/models/foreign/foreign_model.h>

namespace tessera {

/// A candidate for the files of a folder in another library's format. The functions below do not check whether that library supports the
/// model. Instead, the caller reads each draft back and uses the first draft whose settings equal the model's.
struct PublishedDraft {
  std::string what;                          // name of the class or architecture
  std::map<std::string, std::string> files;  // contents by file name; these files replace those that came with the model
  NamedTensors needed = {};                  // tensors that the class has and our models lack; written unless they came with the model
  bool carries_parts = false;                // whether the class `what` can take the extra tensors that came with the model
};

std::vector<PublishedDraft> transformers_drafts(const ModelFile& file);
std::vector<PublishedDraft> timm_drafts(const ModelFile& file);
/// Returns the drafts for OpenCLIP. Throws UserError naming `origin` and the part that none of OpenCLIP's towers
/// supports.
std::vector<PublishedDraft> open_clip_drafts(const ModelFile& file, const std::string& origin);

/// Returns the settings of `part` if it is the module `name`, and the default settings otherwise. A draft with the default settings
/// does not describe the model, so the caller rejects this draft after reading it back.
template <class Settings>
Settings settings_or_default(const config::ModuleSettings& part, const char* name) {
  return part.name == name ? config::read<Settings>(part.settings, "model") : Settings{};
}

/// Returns a JSON file that came with the model. Returns an empty object if there is none, or if the model came from
/// another library than `library`.
nlohmann::ordered_json carried_json(const ModelFile& file, const std::string& library, const std::string& name);

}  // namespace tessera
