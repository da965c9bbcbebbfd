#pragma once

#include <nlohmann/json.hpp>

#include <tessera/models/foreign/foreign_model.h>

namespace tessera {

/// A candidate set of files for a folder that describes a model. The functions below do not check what their library
/// cannot express: the folder is read back, and the first draft that gives the model's settings is used.
struct PublishedDraft {
  std::string what;                          // the class or architecture
  std::map<std::string, std::string> files;  // by name; they replace the files that came with the model
  NamedTensors needed = {};                  // tensors that the class has and our models lack, if the model has none
  bool carries_parts = false;                // whether the extra tensors that came with the model belong to this class
};

std::vector<PublishedDraft> transformers_drafts(const ModelFile& file);
std::vector<PublishedDraft> timm_drafts(const ModelFile& file);
/// Throws UserError naming `origin` and what none of OpenCLIP's towers supports.
std::vector<PublishedDraft> open_clip_drafts(const ModelFile& file, const std::string& origin);

/// Returns the tower's settings for the module `name`, or the defaults if it is another module; reading the folder back
/// detects that.
template <class Settings>
Settings settings_or_default(const config::ModuleSettings& part, const char* name) {
  return part.name == name ? config::read<Settings>(part.settings, "model") : Settings{};
}

/// Returns a JSON file that came with the model, or an empty object if there is none or `library` is another one.
nlohmann::ordered_json carried_json(const ModelFile& file, const std::string& library, const std::string& name);

}  // namespace tessera
