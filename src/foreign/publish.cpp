#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <unistd.h>

#include <ATen/ATen.h>

#include "src/io/pytorch_file.h"
#include "src/io/safetensors_header.h"
#include "src/foreign/draft.h"
#include "src/foreign/publish.h"
#include "src/foreign/same_model.h"
#include "src/foreign/open_clip.h"
#include "src/models/readouts/sparo.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>
#include <tessera/io/safetensors.h>

namespace tessera {

nlohmann::ordered_json carried_json(const ModelFile& file, const std::string& library, const std::string& name) {
  using Ordered = nlohmann::ordered_json;
  if (!file.published || file.published->library != library) return Ordered::object();
  const auto found = file.published->files.find(name);
  if (found == file.published->files.end()) return Ordered::object();
  Ordered keys = Ordered::parse(found->second, nullptr, /*allow_exceptions=*/false);
  return keys.is_object() ? keys : Ordered::object();
}

namespace {

namespace fs = std::filesystem;

constexpr double kStartTemperature = 0.07, kStartBias = -10;
constexpr const char* kIndexEnd = ".index.json";

std::string shown_name(const std::string& library) {
  return library == "open_clip" ? "OpenCLIP" : library;
}

/// Returns true if a file belongs to a tokenizer, in any library's format.
bool is_tokenizer_file(const std::string& name) {
  static const std::set<std::string> names = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                                              "vocab.json",     "vocab.txt",             "merges.txt",              "spiece.model",
                                              "tokenizer.model", "sentencepiece.bpe.model", "chat_template.jinja"};
  return names.contains(name);
}

/// A folder under a temporary name. It is removed unless keep() is called.
class FolderAside {
 public:
  explicit FolderAside(const std::string& folder)
      : folder_((fs::path(folder) / "").parent_path().string()),  // without a slash at the end
        aside_(concat(folder_, ".writing.", ::getpid())) {
    std::error_code error;
    if (fs::exists(folder, error) && !(fs::is_directory(folder, error) && fs::is_empty(folder, error)))
      user_error(folder, ": already exists: name a new folder to write");
    fs::remove_all(aside_, error);
    if (!fs::create_directories(aside_, error)) user_error(aside_, ": cannot create the folder: ", error.message());
  }
  ~FolderAside() {
    std::error_code ignored;
    fs::remove_all(aside_, ignored);
  }
  FolderAside(const FolderAside&) = delete;
  FolderAside& operator=(const FolderAside&) = delete;

  const std::string& path() const { return aside_; }
  std::string file(const std::string& name) const { return aside_ + "/" + name; }
  void hold(const std::map<std::string, std::string>& files) const {
    for (const auto& entry : fs::directory_iterator(aside_)) fs::remove(entry.path());
    for (const auto& [name, text] : files) io::write_file(file(name), text);
  }
  void keep() const {
    std::error_code error;
    fs::remove(folder_, error);  // an empty folder may exist there
    fs::rename(aside_, folder_, error);
    if (error) user_error(folder_, ": cannot write the folder: ", error.message());
  }

 private:
  std::string folder_, aside_;
};

/// Returns true for tensors that only region features use. No other library has region features.
bool is_of_regions(const ModelFile& file, const std::string& name) {
  return name.starts_with("visual.roi_") ||
         (file.model.image.encoder.name == "modified_resnet" && name.starts_with("visual.ln_pre."));
}

constexpr std::string_view kVisual = "visual.";  // how the names of the image tower's weights begin

/// Returns only one of the model's towers, with or without its projection. The result's settings of the other tower are meaningless.
ModelFile tower_alone(const ModelFile& file, FolderTowers which, bool projected) {
  const bool image = which == FolderTowers::image;
  ModelFile out = file;
  if (image) out.model.text.reset();
  else out.model = {.text = file.model.text};
  out.model.unit_length = false;
  TowerSettings& tower = image ? out.model.image : *out.model.text;
  if (!projected) tower.projection = {"none"};
  SharedParameters shared;
  const auto own = Tower(tower, image ? Modality::image : Modality::text, shared, image ? "model.image" : "model.text").state_dict();
  std::erase_if(out.weights, [&](const auto& item) {
    const std::string_view name = item.first;
    const bool of_tower = is_image_parameter(item.first) == image && own.contains(std::string(image ? name.substr(kVisual.size()) : name));
    return !of_tower && !(image && is_of_regions(file, item.first)) && !name.starts_with("objective.");
  });
  if (image) out.tokenizer = {};
  if (file.published && file.model.text)  // the files describe both towers, so only those of the tokenizer are of use
    out.published = std::make_shared<PublishedParts>(PublishedParts{"", file.published->files, {}, {}, {}});
  return out;
}

/// Returns the towers' weights and the temperature, without the weights that only training uses.
NamedTensors weights_to_publish(const ModelFile& file, const std::string& library, std::vector<std::string>& notes) {
  NamedTensors out;
  std::vector<std::string> left_out, of_training;
  for (const auto& [name, tensor] : file.weights) {
    if (name.starts_with("objective.") || name == "visual.mask_token")
      of_training.push_back(name);
    else if (is_of_regions(file, name))
      left_out.push_back(name);
    else
      out.emplace(name, tensor);
  }
  if (!of_training.empty())
    notes.push_back(concat("left out because only training uses them: ", of_training.size(),
                           of_training.size() > 1 ? " tensors, such as " : " tensor, ", of_training.front()));
  if (!left_out.empty())
    notes.push_back(concat("left out because ", shown_name(library), "'s models take no region features: ", join_names(left_out)));
  if (file.model.text) out.emplace("logit_scale", at::tensor(std::log(1 / kStartTemperature), at::kFloat));  // the initial value
  return out;
}

/// Adds a note if the written files lack the tokenizer. OpenCLIP needs no files for CLIP's.
void note_missing_tokenizer(const ModelFile& file, const std::string& library, const std::map<std::string, std::string>& files,
                            std::vector<std::string>& notes) {
  const std::string& tokenizer = file.tokenizer.name;
  if (!file.model.text || (library == "open_clip" && (tokenizer.empty() || tokenizer == "clip-bpe"))) return;
  if (std::ranges::any_of(files, [](const auto& item) { return is_tokenizer_file(item.first); })) return;
  notes.push_back(concat(tokenizer.empty() ? "the model has no tokenizer" : concat("its tokenizer ", tokenizer, " is not part of it"),
                         ": pass the ids of the tokenizer that it was trained with to ", shown_name(library)));
}

/// Returns whether a tensor of this name came back as it was. Numbers that are stored minus 1 may lose their last bit.
bool is_equal(const std::vector<TensorRule>& rules, const std::string& name, const at::Tensor& back, const at::Tensor& ours) {
  if (at::equal(back, ours)) return true;
  constexpr double kLastBit = 6e-8;
  const auto fits = [&](const std::string& pattern) { return name_fits(pattern, name); };
  const bool rounded = std::ranges::any_of(
      rules, [&](const TensorRule& rule) { return rule.change == TensorChange::one_less && std::ranges::any_of(rule.ours, fits); });
  return rounded && at::allclose(back, ours, 0, kLastBit);
}

/// Holds a draft, its files, the model that results from reading these files back, and the tensors to write.
struct Filled {
  PublishedDraft draft;
  std::map<std::string, std::string> files;
  ForeignModel model;
  NamedTensors written;   // under the library's names
  NamedTensors replaced;  // our values of the tensors for which `written` has the values that came with the model
};

class Publication {
 public:
  Publication(const ModelFile& file, const PublishRequest& request, const FolderAside& aside, PublishedFolder& out)
      : request_(request), aside_(aside), out_(out), file_(part_of(file)),
        weights_(weights_to_publish(file_, request.library, out.notes)) {}

  void write() {
    Filled chosen = choose();
    out_.what = chosen.draft.what;
    note_missing_tokenizer(file_, request_.library, chosen.files, out_.notes);
    save(chosen);
    check(chosen);
  }

 private:
  /// Returns what the folder is to hold.
  ModelFile part_of(const ModelFile& file) const {
    const bool timm = request_.library == "timm";
    if (request_.towers == FolderTowers::text && !file.model.text) user_error(request_.origin, ": has no text tower");
    if (!timm && request_.towers == FolderTowers::both) return file;
    const FolderTowers which = timm ? FolderTowers::image : request_.towers;
    std::vector<std::string> left_out;
    if (file.model.text) left_out.emplace_back(which == FolderTowers::image ? "the text tower" : "the image tower");
    if (timm && file.model.image.projection.name != "none") left_out.emplace_back("the image projection");
    const char* reason = timm ? "timm's models are image towers" : "one tower is written";
    if (!left_out.empty()) out_.notes.push_back(concat("left out because ", reason, ": ", join_names(left_out)));
    return tower_alone(file, which, /*projected=*/!timm);
  }

  /// Leaves out the projection of a tower that is written alone. Returns false if there is none.
  bool leave_out_projection() {
    if (request_.towers == FolderTowers::both || request_.library == "timm") return false;
    const bool image = request_.towers == FolderTowers::image;
    if ((image ? file_.model.image : *file_.model.text).projection.name == "none") return false;
    file_ = tower_alone(file_, request_.towers, /*projected=*/false);
    std::vector<std::string> said;  // the notes on these weights exist already
    weights_ = weights_to_publish(file_, request_.library, said);
    out_.notes.push_back(concat("left out because ", request_.library, " has no class for the tower with it: the ",
                                image ? "image" : "text", " projection"));
    return true;
  }

  const PublishedParts* carried() const {
    return file_.published && file_.published->library == request_.library ? file_.published.get() : nullptr;
  }

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    user_error(request_.origin, ": ", shown_name(request_.library), " has no class for this model: ", parts...);
  }

  std::vector<PublishedDraft> drafts() const {
    if (request_.library == "timm") return timm_drafts(file_);
    return request_.library == "transformers" ? transformers_drafts(file_, request_.towers) : open_clip_drafts(file_, request_.origin);
  }

  /// Tries drafts in turn until a draft describes this model, and returns that draft. If the model came with files of this library, the
  /// first draft consists of these files, unchanged.
  Filled choose() {
    if (carried() != nullptr) {
      Filled same = filled_by({"", {}, {}, true});
      if (read(same).empty()) return same;
    }
    std::vector<std::string> nearest;
    std::string nearest_what;
    for (const PublishedDraft& draft : drafts()) {
      Filled filled = filled_by(draft);
      const std::vector<std::string> unlike = read(filled);
      if (unlike.empty()) return filled;
      if (nearest_what.empty() || unlike.size() < nearest.size()) {
        nearest = unlike;
        nearest_what = draft.what;
      }
    }
    if (leave_out_projection()) return choose();
    const TowerSettings& image = file_.model.image;
    if (nearest_what.empty()) refuse("its image encoder is ", image.encoder.name, " with the read-out ", image.readout.name);
    refuse("its ", nearest.front(), " as in ", nearest_what, nearest.size() > 1 ? concat(" (", nearest.size() - 1, " more differ)") : "");
  }

  Filled filled_by(const PublishedDraft& draft) const { return {draft, files_of(draft), {}, {}, {}}; }

  std::map<std::string, std::string> files_of(const PublishedDraft& draft) const {
    std::map<std::string, std::string> files;
    if (carried() != nullptr) files = carried()->files;
    const auto add_tokenizer = [&](const std::map<std::string, std::string>& from) {
      for (const auto& [name, text] : from)
        if (is_tokenizer_file(name)) files.emplace(name, text);
    };
    if (carried() == nullptr && file_.model.text) {
      if (file_.published) add_tokenizer(file_.published->files);
      if (files.empty()) add_tokenizer(request_.tokenizer);
    }
    for (const auto& [name, text] : draft.files) files.insert_or_assign(name, text);
    return files;
  }

  /// Reads the draft's files back and returns the settings in which they differ from the model.
  std::vector<std::string> read(Filled& filled) const {
    aside_.hold(filled.files);
    try {
      filled.model = read_published_folder(aside_.path());
    } catch (const UserError& error) {
      std::string text = error.what();
      if (const std::size_t place = text.find(aside_.path()); place == 0) text.erase(0, aside_.path().size() + 1);
      return {"its settings cannot be expressed: " + text, ""};
    }
    std::vector<std::string> unlike = differences(file_, filled.model);
    if (unlike.empty()) unlike = fill(filled);
    return unlike;
  }

  /// Sets filled.written to the tensors under the library's names, including the extra tensors that came with the model. Returns an empty
  /// list or, if a tensor cannot be written, a list with the reason.
  std::vector<std::string> fill(Filled& filled) const {
    NamedTensors own = weights_;
    const bool siglip = filled.model.library == "transformers" && filled.model.padding_is_text;
    if (siglip) own.emplace("logit_bias", at::tensor(kStartBias, at::kFloat));
    RenamedTensors renamed = write_by_rules(filled.model.rules, own);
    std::erase_if(renamed.left_over, [](const std::string& name) { return name == "logit_scale" || name == "logit_bias"; });
    if (!renamed.left_over.empty()) return {concat("tensor ", renamed.left_over.front(), " has no counterpart")};
    filled.written = std::move(renamed.tensors);
    if (filled.draft.carries_parts && carried() != nullptr) {
      for (const auto& [name, tensor] : carried()->tensors) {
        const auto changed = carried()->digests.find(name);
        const auto ours = filled.written.find(name);
        if (ours == filled.written.end() || changed == carried()->digests.end()) {
          filled.written.emplace(name, tensor);
        } else if (!filled.draft.what.empty() && tensor.sizes() != ours->second.sizes()) {
          continue;  // this draft's configuration describes the resized model
        } else if (compute_digest(ours->second) == changed->second) {
          filled.replaced[name] = ours->second;
          ours->second = tensor;
        } else if (filled.draft.what.empty()) {
          // This draft's configuration has the original image size, but the tensor was resized on reading and then trained.
          return {concat("tensor ", name, " is trained at another size")};
        }
      }
    }
    for (const auto& [name, tensor] : filled.draft.needed) filled.written.emplace(name, tensor);
    return {};
  }

  /// Returns true if the weight files that came with the model have exactly these tensors.
  bool fits_carried_layout(const NamedTensors& written) const {
    if (carried() == nullptr || carried()->weights.empty()) return false;
    std::size_t names = 0;
    for (const auto& [name, layout] : carried()->weights) {
      if (!io::fits_layout(layout, written, request_.origin)) return false;
      names += io::parse_safetensors_header(layout.header, layout.data_bytes, request_.origin).entries.size();
    }
    return names == written.size();
  }

  void save(Filled& filled) const {
    if (fits_carried_layout(filled.written)) {
      for (const auto& [name, layout] : carried()->weights) io::save_safetensors_as(layout, aside_.file(name), filled.written);
      return;
    }
    for (const auto& [name, text] : filled.files)
      if (name.ends_with(kIndexEnd)) fs::remove(aside_.file(name));
    say_float(filled);
    const char* name = request_.library == "open_clip" ? "open_clip_model.safetensors" : "model.safetensors";
    io::save_safetensors(aside_.file(name), filled.written, {{"format", "pt"}});
  }

  /// Sets the type in config.json to float32, because our weights have this type and transformers loads weights in the
  /// type that config.json names.
  void say_float(const Filled& filled) const {
    if (request_.library != "transformers") return;
    auto config = nlohmann::ordered_json::parse(filled.files.at("config.json"));
    for (const char* key : {"dtype", "torch_dtype"})
      if (config.contains(key)) config[key] = "float32";
    if (config.dump() != nlohmann::ordered_json::parse(filled.files.at("config.json")).dump())
      io::write_file(aside_.file("config.json"), config.dump(2) + "\n");
  }

  /// Reads the folder's tensors back and checks that they equal the model's.
  void check(const Filled& filled) const {
    NamedTensors theirs = request_.library == "open_clip" ? load_weights(find_open_clip_weights(aside_.path()))
                                                          : load_foreign_weights(aside_.path());
    for (const auto& [name, tensor] : filled.replaced) theirs[name] = tensor;
    const NamedTensors back = read_by_rules(filled.model.rules, theirs, weights_, aside_.path()).tensors;
    for (const auto& [name, tensor] : weights_) {
      if (name == "logit_bias" && !back.contains(name)) continue;  // the library's class has no logit_bias
      if (name == "logit_scale" && !back.contains(name)) continue;
      const auto found = back.find(name);
      const bool there = found != back.end() && found->second.numel() == tensor.numel();
      if (!there || !is_equal(filled.model.rules, name, found->second.to(tensor.scalar_type()).reshape_as(tensor), tensor.cpu()))
        user_error(request_.folder, ": not written: tensor ", name, " does not come back from the folder as it is in ", request_.origin);
    }
  }

  const PublishRequest& request_;
  const FolderAside& aside_;
  PublishedFolder& out_;
  ModelFile file_;
  NamedTensors weights_;
};

}  // namespace

PublishedFolder write_published(const ModelFile& file, const PublishRequest& request) {
  if (is_sparo(file.model))
    user_error(request.origin, ": SPARO's slots cannot be stored in a published folder: --to open_clip with an output that ends in "
                               ".safetensors writes a file for SPARO's code");
  const FolderAside aside(request.folder);
  PublishedFolder out;
  Publication(file, request, aside, out).write();
  aside.keep();
  return out;
}

namespace {

/// Throws UserError for tensors that have no counterpart in OpenCLIP's own towers.
void check_open_clip_can_hold(const ModelFile& file, const std::string& path) {
  for (const auto& [name, tensor] : file.weights) {
    bool foreign = name.find(".mlp.dwconv.") != std::string::npos;
    for (const char* part : {"readout.", "adaptor.", "global_head.", "head.", "patch_embed.", "group_tokens"})
      foreign |= name.starts_with(part) || name.starts_with(std::string("visual.") + part);
    if (foreign)
      user_error(path, ": OpenCLIP has no counterpart of ", name,
                 "; only towers with its own blocks and read-outs and linear projections can be converted; "
                 "python/tessera/plain_model.py reads the others, in plain PyTorch");
  }
}

}  // namespace

std::vector<std::string> write_open_clip_file(const ModelFile& file, const std::string& origin, const std::string& path) {
  std::vector<std::string> notes;
  const bool sparo = is_sparo(file.model);
  const std::string configuration = sparo ? "" : open_clip_config(file, origin);
  check_open_clip_can_hold(file, origin);
  NamedTensors weights = weights_to_publish(file, "open_clip", notes);
  weights.emplace("logit_scale", at::tensor(std::log(1 / kStartTemperature), at::kFloat));
  add_value_copies(weights);
  const fs::path folder = fs::absolute(path).parent_path();
  if (!sparo) weights = write_by_rules(open_clip_model(configuration, (folder / "open_clip_config.json").string()).rules, weights).tensors;
  io::save_safetensors(path, weights, {{"format", "pt"}});
  if (sparo) {
    notes.emplace_back("no open_clip_config.json: the file is for SPARO's code; python/tessera/plain_model.py also reads the model");
    return notes;
  }
  io::write_file((folder / "open_clip_config.json").string(), configuration);
  notes.push_back("open_clip.create_model_and_transforms('local-dir:" + folder.string() + "') loads it: open_clip_config.json is next "
                    "to it");
  note_missing_tokenizer(file, "open_clip", {}, notes);
  return notes;
}

}  // namespace tessera
