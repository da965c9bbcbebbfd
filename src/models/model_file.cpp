#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "src/base/digest.h"
#include "src/base/printable.h"
#include "src/models/stored_form.h"
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>
#include <tessera/io/safetensors.h>
#include <tessera/models/model_file.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormatKey = "tessera.format";
constexpr const char* kModelKey = "tessera.model";
constexpr const char* kTokenizerKey = "tessera.tokenizer";
constexpr const char* kVocabularyKey = "tessera.vocabulary";
constexpr const char* kVocabularyHashKey = "tessera.vocabulary_sha256";
constexpr const char* kPublishedKey = "tessera.published";
constexpr const char* kFormatVersion = "1";
constexpr const char* kModelName = "model.safetensors";

using Metadata = std::map<std::string, std::string>;

const std::string* find(const Metadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? nullptr : &found->second;
}

config::Node parse_settings(const std::string& text, const char* key, const std::string& path) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) user_error(path, ": metadata ", key, " is not JSON: the file is damaged");
  return config::from_json(json, path);
}

std::string settings_text(const config::Node& node) {
  return config::to_json(node).dump();
}

std::string read_vocabulary(const Metadata& metadata, const std::string& path) {
  const std::string* text = find(metadata, kVocabularyKey);
  if (text == nullptr) return {};
  std::string vocabulary;
  try {
    vocabulary = base64_decode(*text);
  } catch (const UserError& error) {
    user_error(path, ": metadata ", kVocabularyKey, ": ", error.what(), ": the file is damaged");
  }
  const std::string* expected = find(metadata, kVocabularyHashKey);
  const std::string actual = sha256(vocabulary);
  if (expected == nullptr || *expected != actual)
    user_error(path, ": the tokenizer's vocabulary has SHA-256 ", actual, ", but ", kVocabularyHashKey, " says ",
               expected == nullptr ? "nothing" : *expected, ": the file is damaged or was edited by hand");
  return vocabulary;
}

constexpr std::string_view kFilePrefix = "published.file.", kTensorPrefix = "published.tensor.";

at::Tensor bytes_tensor(const std::string& bytes) {
  at::Tensor out = at::empty({static_cast<std::int64_t>(bytes.size())}, at::kByte);
  std::copy(bytes.begin(), bytes.end(), static_cast<char*>(out.data_ptr()));
  return out;
}

std::string bytes_of(const at::Tensor& tensor, const std::string& name, const std::string& path) {
  if (tensor.scalar_type() != at::kByte || tensor.dim() != 1)
    user_error(path, ": tensor ", name, " does not contain a file's bytes: the file is damaged");
  return {static_cast<const char*>(tensor.const_data_ptr()), static_cast<std::size_t>(tensor.numel())};
}

/// Adds the kept parts of a published folder. File contents and tensors become entries of `tensors`; the rest becomes JSON in the metadata.
/// A file that equals `file.vocabulary` is not stored a second time.
void add_published(const ModelFile& file, std::map<std::string, at::Tensor>& tensors, Metadata& metadata) {
  const PublishedParts& parts = *file.published;
  nlohmann::json json = {{"library", parts.library}, {"vocabulary", nlohmann::json::array()}, {"digests", parts.digests}};
  for (const auto& [name, bytes] : parts.files)
    if (!bytes.empty() && bytes == file.vocabulary)
      json["vocabulary"].push_back(name);
    else
      tensors[std::string(kFilePrefix) + name] = bytes_tensor(bytes);
  for (const auto& [name, tensor] : parts.tensors) tensors[std::string(kTensorPrefix) + name] = tensor;
  for (const auto& [name, layout] : parts.weights) json["weights"][name] = {{"header", layout.header}, {"data_bytes", layout.data_bytes}};
  metadata[kPublishedKey] = json.dump();
}

/// The inverse of add_published(): removes the parts from the file's tensors and returns them.
std::shared_ptr<const PublishedParts> take_published(const std::string& text, ModelFile& file, const std::string& path) {
  auto parts = std::make_shared<PublishedParts>();
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    parts->library = json.at("library").get<std::string>();
    parts->digests = json.at("digests").get<std::map<std::string, std::string>>();
    for (const auto& name : json.at("vocabulary")) parts->files[name.get<std::string>()] = file.vocabulary;
    if (json.contains("weights"))
      for (const auto& [name, layout] : json.at("weights").items())
        parts->weights[name] = {layout.at("header").get<std::string>(), layout.at("data_bytes").get<std::uint64_t>()};
  } catch (const nlohmann::json::exception&) {
    user_error(path, ": metadata ", kPublishedKey, " is not what tessera-convert writes: the file is damaged");
  }
  for (const auto& [name, tensor] : file.weights) {
    if (name.starts_with(kFilePrefix)) parts->files[name.substr(kFilePrefix.size())] = bytes_of(tensor, name, path);
    if (name.starts_with(kTensorPrefix)) parts->tensors[name.substr(kTensorPrefix.size())] = tensor;
  }
  std::erase_if(file.weights, [](const auto& item) { return item.first.starts_with(kFilePrefix) || item.first.starts_with(kTensorPrefix); });
  return parts;
}

/// Returns the checkpoint that FOLDER/latest names, or an empty path if there is none.
fs::path latest_checkpoint(const fs::path& folder) {
  const fs::path latest = folder / "latest";
  if (fs::is_directory(latest)) return latest;
  if (!fs::is_regular_file(latest)) return {};
  return named_checkpoint(latest.string());
}

}  // namespace

std::string named_checkpoint(const std::string& file) {
  const fs::path path(file);
  if ((path.filename() != "latest" && path.filename() != "best") || !fs::is_regular_file(path)) return {};
  const std::vector<std::string> words = split(std::string(strip(io::read_file(file))), ' ');
  return (path.parent_path() / words.front()).string();
}

std::vector<std::string> weight_files(const std::string& folder) {
  std::vector<std::string> out;
  std::error_code unreadable;
  for (const auto& entry : fs::directory_iterator(folder, unreadable)) {
    const std::string ending = entry.path().extension().string();
    if (entry.is_regular_file() && (ending == ".safetensors" || ending == ".pt" || ending == ".pth" || ending == ".bin"))
      out.push_back(entry.path().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

bool is_model_file(const std::string& path) {
  return io::load_safetensors_metadata(path).contains(kModelKey);
}

std::vector<std::int64_t> nested_widths(const ModelFile& file, const std::string& origin) {
  std::vector<std::int64_t> out;
  const auto found = file.extra.find(kNestedWidths);
  if (found == file.extra.end()) return out;
  for (const std::string& word : split(found->second, ' ')) {
    std::int64_t width = 0;
    const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), width);
    if (problem != std::errc() || end != word.data() + word.size() || width < 1)
      user_error(origin, ": the metadata ", kNestedWidths, " is ", printable(found->second), ", expected numbers such as 64 128");
    out.push_back(width);
  }
  return out;
}

ModelFile load_model_file(const std::string& path) {
  return from_stored_form(io::load_safetensors(path), path);
}

ModelFile from_stored_form(io::TensorFile stored, const std::string& path) {
  const std::string* model = find(stored.metadata, kModelKey);
  if (model == nullptr)
    user_error(path,
               ": no model settings in it; if it is an OpenCLIP file, convert it: "
               "tessera-convert --from open_clip --architecture NAME ",
               path, " OUT.safetensors");
  ModelFile file;
  file.model = config::read<ModelSettings>(parse_settings(*model, kModelKey, path), "model");
  if (const std::string* tokenizer = find(stored.metadata, kTokenizerKey))
    file.tokenizer =
        config::Value<config::ModuleSettings>::read(parse_settings(*tokenizer, kTokenizerKey, path), "tokenizer", {});
  file.vocabulary = read_vocabulary(stored.metadata, path);
  file.weights = std::move(stored.tensors);
  if (const std::string* published = find(stored.metadata, kPublishedKey)) file.published = take_published(*published, file, path);
  const std::set<std::string> ours = {kFormatKey, kModelKey, kTokenizerKey, kVocabularyKey, kVocabularyHashKey, kPublishedKey};
  for (const auto& [key, value] : stored.metadata)
    if (!ours.contains(key)) file.extra[key] = value;
  return file;
}

void save_model_file(const std::string& path, const ModelFile& file) {
  const io::TensorFile stored = stored_form(file);
  io::save_safetensors(path, stored.tensors, stored.metadata);
}

io::TensorFile stored_form(const ModelFile& file) {
  io::TensorFile out{file.weights, file.extra};
  Metadata& metadata = out.metadata;
  metadata[kFormatKey] = kFormatVersion;
  metadata[kModelKey] = settings_text(config::dump(file.model));
  if (!file.tokenizer.name.empty())
    metadata[kTokenizerKey] = settings_text(config::Value<config::ModuleSettings>::dump(file.tokenizer));
  if (!file.vocabulary.empty()) {
    metadata[kVocabularyKey] = base64_encode(file.vocabulary);
    metadata[kVocabularyHashKey] = sha256(file.vocabulary);
  }
  if (file.published) add_published(file, out.tensors, metadata);
  return out;
}

std::string find_model_file(const std::string& path) {
  const std::string named = named_checkpoint(path);
  const fs::path start(named.empty() ? path : named);
  if (fs::is_regular_file(start)) return path;
  if (!fs::is_directory(start)) user_error(path, ": no such file or folder");
  std::vector<fs::path> folders = {start};
  for (const fs::path& parent : {start / "checkpoints", start}) {
    const fs::path checkpoint = latest_checkpoint(parent);
    if (checkpoint.empty()) continue;
    if (!fs::is_regular_file(checkpoint / kModelName))
      user_error((parent / "latest").string(), ": names ", checkpoint.filename().string(), ", but there is no ",
                 (checkpoint / kModelName).string(), ": name another checkpoint folder");
    folders.push_back(checkpoint);
  }
  for (const fs::path& folder : folders)
    if (fs::is_regular_file(folder / kModelName)) return (folder / kModelName).string();
  std::vector<std::string> others = weight_files(start.string());
  if (others.empty()) others = weight_files((start / "checkpoints").string());
  user_error(path, ": holds neither ", kModelName, " nor checkpoints/latest: ",
             others.empty() ? "expected a model file, a checkpoint folder or a run folder"
                            : concat("name a file in it: ", join_names(others)));
}

std::shared_ptr<DualEncoder> build_model(const ModelFile& file, const std::string& origin) {
  auto model = std::make_shared<DualEncoder>(file.model, origin + ": model");
  std::map<std::string, at::Tensor> weights;
  for (const auto& [name, tensor] : file.weights)
    if (!name.starts_with("objective.")) weights.emplace(name, tensor);
  model->load_state(weights, origin);
  model->eval();
  return model;
}

}  // namespace tessera
