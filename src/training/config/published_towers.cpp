#include "src/training/config/published_towers.h"

#include <filesystem>

#include "src/foreign/published_tokenizer.h"
#include "src/foreign/publish.h"
#include "src/foreign/open_clip.h"
#include "src/remote/local_copy.h"
#include "src/remote/store.h"
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

using config::Node;

Node file_node(const std::string& path) {
  return Node::scalar(path, {}, /*quoted=*/true);
}

/// Returns the settings of the tokenizer that belongs to the published folder `folder`.
Node tokenizer_node(const ForeignModel& model, const std::string& folder) {
  if (const auto found = tokenizer_of_folder(model, folder)) {
    config::ModuleSettings settings = found->settings;
    settings.settings.set("model", file_node(found->file));
    return config::Value<config::ModuleSettings>::dump(settings);
  }
  return config::Value<config::ModuleSettings>::dump(clip_tokenizer(*model.model.text));
}

/// Merges `over` on top of `base`; a null or missing `over` changes nothing.
Node laid_over(Node base, const Node* over) {
  if (over != nullptr && !over->is_null()) base.merge(*over);
  return base;
}

Node member(const Node& tree, const char* key) {
  const Node* found = tree.find(key);
  return found == nullptr ? Node::map() : *found;
}

/// Removes the key `from` from the settings of a tower and returns its value.
std::optional<config::FilePath> taken_from(Node& side, const std::string& path) {
  const Node* from = side.find("from");
  if (from == nullptr) return std::nullopt;
  const auto folder = config::Value<config::FilePath>::read(*from, path, {});
  side.erase("from");
  return folder;
}

}  // namespace

Node with_published_towers(Node tree) {
  Node model = member(tree, "model"), start = member(tree, "start");
  bool changed = false;
  for (const char* side : {"image", "text"}) {
    Node tower = member(model, side);
    const auto folder = taken_from(tower, concat("model.", side, ".from"));
    if (!folder) continue;
    changed = true;
    if (remote::is_remote(folder->name)) {
      const Node data = member(tree, "data");
      if (const Node* cache = data.find("cache")) remote::use_settings(config::read<remote::CacheSettings>(*cache, "data.cache"));
    }
    const std::string copy = remote::local_copy_of(*folder);
    const ForeignModel foreign = read_published_folder(copy);
    const bool image = std::string_view(side) == "image";
    if (image && !foreign.image_tower) user_error(folder->origin, ": ", folder->name, " has no image tower");
    if (!image && !foreign.model.text) user_error(folder->origin, ": ", folder->name, " has no text tower");
    Node base = config::dump(image ? foreign.model.image : *foreign.model.text);
    if (image) {
      Node encoder = member(base, "encoder");
      encoder.erase("image_size");  // the image size is taken from the preprocessing
      base.set("encoder", encoder);
      const Node preprocessing = config::dump(foreign.model.preprocessing);
      model.set("preprocessing", laid_over(preprocessing, model.find("preprocessing")));
    } else {
      const Node* given = tree.find("tokenizer");
      // A tokenizer with a name replaces the folder's; other settings only change the folder's.
      if (given == nullptr || (given->is_map() && given->find("name") == nullptr))
        tree.set("tokenizer", laid_over(tokenizer_node(foreign, copy), given));
    }
    model.set(side, laid_over(base, &tower));
    if (start.find(side) == nullptr) start.set(side, file_node(folder->name));
  }
  if (!changed) return tree;
  tree.set("model", model);
  tree.set("start", start);
  return tree;
}

NamedTensors published_tensors(const std::string& path, const NamedTensors& own, const std::string& state) {
  if (is_foreign_folder(path)) return own_tensors(read_foreign_folder(path), load_foreign_weights(path, state), own, path);
  const std::string weights = find_open_clip_weights(path);
  return open_clip_tensors(weights, own, usable_description(weights, state).value_or(ForeignModel{}), state);
}

std::optional<config::ModuleSettings> whole_tokenizer(const config::ModuleSettings& tokenizer) {
  if (tokenizer.name.empty()) return std::nullopt;
  try {
    return tokenizers().resolve(tokenizer, "tokenizer");
  } catch (const UserError&) {
    return std::nullopt;
  }
}

std::optional<KnownSettings> published_settings(const std::string& path, const std::string& state) {
  const bool foreign_folder = is_foreign_folder(path);
  const std::string weights = foreign_folder ? path : find_open_clip_weights(path);
  const auto foreign = foreign_folder ? read_foreign_folder(path) : usable_description(weights, state);
  if (!foreign) return std::nullopt;
  KnownSettings out{foreign->model, std::nullopt};
  if (!foreign->model.text) return out;
  try {
    const std::string folder = foreign_folder ? path : std::filesystem::absolute(weights).parent_path().string();
    out.tokenizer = whole_tokenizer(config::Value<config::ModuleSettings>::read(tokenizer_node(*foreign, folder), "tokenizer", {}));
  } catch (const UserError&) {  // a weights file without its tokenizer's files
  }
  return out;
}

std::shared_ptr<const PublishedParts> start_parts(const StartSettings& start) {
  const CheckpointOptions reading{.state = start.state};
  if (start.weights) {
    if (!start.parts.empty()) return nullptr;
    const std::string path = remote::local_copy(start.weights->name);
    if (is_published_folder(path)) return load_published_folder(path, reading).published;
    return is_open_clip_checkpoint(path) ? nullptr : load_model_file(find_model_file(path)).published;
  }
  if (!start.image && !start.text) return nullptr;
  const std::string from = remote::local_copy((start.image ? start.image : start.text)->name);
  if (!is_published_folder(from)) return nullptr;
  const bool one_folder = !start.image || !start.text || start.image->name == start.text->name;
  if (one_folder && read_published_folder(from).image_tower) return load_published_folder(from, reading).published;
  // If the towers come from two places, no folder describes the whole model, so only the tokenizer of the text tower's folder is kept.
  const std::string text = start.text ? remote::local_copy(start.text->name) : "";
  if (!is_published_folder(text)) return nullptr;
  return std::make_shared<PublishedParts>(PublishedParts{"", small_files(text), {}, {}, {}});
}

}  // namespace tessera
