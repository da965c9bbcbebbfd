#pragma once

#include <nlohmann/json.hpp>

#include "src/foreign/foreign_model.h"

namespace tessera {

/// A possible set of files for publishing a model in another library's format. The functions below do not check whether that library
/// supports the model. Instead, the caller reads each draft back and uses the first draft whose settings equal the model's.
struct PublishedDraft {
  std::string what;                          // name of the class or architecture
  std::map<std::string, std::string> files;  // contents by file name; these files replace those that came with the model
  NamedTensors needed = {};                  // tensors that the class has and our models lack; unused if the original folder has them
  bool carries_parts = false;                // whether the class named in `what` has the extra tensors that came with the model
};

/// If `towers` is `text`, `file.model.image` is meaningless.
std::vector<PublishedDraft> transformers_drafts(const ModelFile& file, FolderTowers towers);
std::vector<PublishedDraft> timm_drafts(const ModelFile& file);
/// Returns the drafts for OpenCLIP. If none of OpenCLIP's towers supports a part of the model, throws UserError naming `origin` and this
/// part.
std::vector<PublishedDraft> open_clip_drafts(const ModelFile& file, const std::string& origin);

/// If `part` is the module `name`, returns its settings. Otherwise returns default settings. The resulting draft does not describe the
/// model, so the caller rejects the draft when comparing it with the model.
template <class Settings>
Settings settings_or_default(const config::ModuleSettings& part, const char* name) {
  return part.name == name ? config::read<Settings>(part.settings, "model") : Settings{};
}

/// Returns a JSON file that came with the model. Returns an empty object if there is none, or if the model came from
/// another library than `library`.
nlohmann::ordered_json carried_json(const ModelFile& file, const std::string& library, const std::string& name);

/// Returns the JSON object `over` with the keys that only `under` has, also in the objects inside.
inline nlohmann::ordered_json merged(nlohmann::ordered_json under, const nlohmann::ordered_json& over) {
  under.update(over, /*merge_objects=*/true);
  return under;
}

}  // namespace tessera
