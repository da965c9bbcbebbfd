#pragma once

#include <nlohmann/json.hpp>

#include <tessera/models/foreign/foreign_model.h>

namespace tessera {

/// Files of a folder that may say what a model is. Whoever makes one does not check what its library lacks: the folder is read
/// back, and the first draft is taken that says the model's settings.
struct PublishedDraft {
  std::string what;                          // the class or architecture
  std::map<std::string, std::string> files;  // by name; laid over the files that the model carries
  NamedTensors needed = {};                  // what the class has and our models lack, where the model carries none
  bool carries_parts = false;                // the tensors that the model carries belong to this class
};

std::vector<PublishedDraft> transformers_drafts(const ModelFile& file);
std::vector<PublishedDraft> timm_drafts(const ModelFile& file);
/// Throws UserError naming `origin` and what none of OpenCLIP's towers has.
std::vector<PublishedDraft> open_clip_drafts(const ModelFile& file, const std::string& origin);

/// The tower's settings as those of a module; the defaults where it is another one, which the reading back finds.
template <class Settings>
Settings settings_or_default(const config::ModuleSettings& part, const char* name) {
  return part.name == name ? config::read<Settings>(part.settings, "model") : Settings{};
}

/// A JSON file that the model carries; an empty object where it carries none or `library` is another one.
nlohmann::ordered_json carried_json(const ModelFile& file, const std::string& library, const std::string& name);

}  // namespace tessera
