#include <filesystem>

#include <tessera/base/text.h>
#include <tessera/config/shipped.h>
#include <tessera/io/atomic_file.h>
#include <tessera/io/pytorch_file.h>
#include <tessera/io/safetensors.h>
#include <tessera/models/architectures.h>
#include <tessera/models/open_clip.h>
#include <tessera/models/readouts/sparo.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCheckpointConfig = "open_clip_config.json";
constexpr std::int64_t kClipVocabulary = 49408;

bool is_weights_name(const fs::path& name) {
  const std::string ending = name.extension().string();
  return ending == ".safetensors" || ending == ".pt" || ending == ".pth" || ending == ".bin";
}

/// Returns true if a folder is one of our runs or checkpoints, or contains one of our models.
bool holds_our_model(const fs::path& folder) {
  const fs::path model = folder / "model.safetensors";
  return fs::exists(folder / "latest") || fs::exists(folder / "checkpoints" / "latest") ||
         (fs::is_regular_file(model) && is_model_file(model.string()));
}

/// Returns true if the model's token table has room for CLIP's tokens. The table may have more entries, as in OpenCLIP's coca_base.
bool reads_clip_tokens(const ModelSettings& model) {
  const config::Node* size = model.text->encoder.settings.find("vocab_size");
  return size != nullptr && config::Value<std::int64_t>::read(*size, "vocab_size", 0) >= kClipVocabulary;
}

/// Returns what open_clip_config.json in the weights' folder describes; nullopt if there is no such file.
std::optional<ForeignModel> described_beside(const std::string& weights) {
  const fs::path config = fs::absolute(weights).parent_path() / kCheckpointConfig;
  if (!fs::is_regular_file(config)) return std::nullopt;
  return open_clip_model(io::read_file(config.string()), config.string());
}

ForeignModel settings_beside(const std::string& weights) {
  if (const auto described = described_beside(weights)) return *described;
  if (io::is_pytorch_file(weights)) {
    if (const auto openai = openai_model(io::load_pytorch_file(weights), weights)) {
      ForeignModel out;
      out.model = *openai;
      return out;
    }
  }
  user_error(weights, ": weights without our settings, and no ", kCheckpointConfig,
             " beside them: say which of OpenCLIP's models they are, --architecture ViT-B-32 (tessera-convert --list "
             "shows the names), or put its configuration there; for weights of a Tessera run, tessera-convert --settings RUN ", weights,
             " OUT.safetensors adds the run's settings");
}

}  // namespace

config::ModuleSettings clip_tokenizer(const TowerSettings& text) {
  config::ModuleSettings tokenizer{"clip-bpe"};
  tokenizer.settings.set("cleanup", config::Node::scalar("full"));
  if (const config::Node* length = text.encoder.settings.find("context_length"))
    tokenizer.settings.set("context_length", *length);
  if (const config::Node* attention = text.encoder.settings.find("attention"); attention != nullptr && attention->text() == "bidirectional")
    tokenizer.settings.set("pad_is_text", config::Node::scalar("true"));
  return tokenizer;
}

bool is_open_clip_checkpoint(const std::string& path) {
  std::error_code unknown;
  if (fs::is_directory(path, unknown)) return fs::exists(fs::path(path) / kCheckpointConfig) && !holds_our_model(path);
  if (!fs::is_regular_file(path, unknown)) return false;
  return io::is_pytorch_file(path) || (path.ends_with(".safetensors") && !is_model_file(path));
}

std::string find_open_clip_weights(const std::string& path) {
  if (!fs::is_directory(path)) return path;
  for (const char* name : {"open_clip_model.safetensors", "open_clip_pytorch_model.bin"})
    if (fs::is_regular_file(fs::path(path) / name)) return (fs::path(path) / name).string();
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(path))
    if (entry.is_regular_file() && is_weights_name(entry.path())) found.push_back(entry.path().string());
  if (found.empty()) user_error(path, ": holds no weights: expected open_clip_model.safetensors or a PyTorch file");
  if (found.size() > 1)
    user_error(path, ": holds several weight files, ", join_names(found), ": name one of them");
  return found.front();
}

std::map<std::string, at::Tensor> load_weights(const std::string& path) {
  std::map<std::string, at::Tensor> tensors =
      io::is_pytorch_file(path) ? io::load_pytorch_file(path) : io::load_safetensors(path).tensors;
  if (tensors.contains("vision_model.embeddings.class_embedding"))
    user_error(path, ": holds Hugging Face's CLIPModel, not OpenCLIP's: take open_clip_model.safetensors of the same "
               "model, or save OpenCLIP's state_dict()");
  return tensors;
}

ForeignModel open_clip_settings(const std::string& path, const std::string& name) {
  return name.empty() ? settings_beside(find_open_clip_weights(path)) : described_architecture(name);
}

ModelFile from_named_tensors(const std::map<std::string, at::Tensor>& tensors, const ModelSettings& settings,
                             const std::string& origin) {
  ModelFile file;
  DualEncoder model(settings);
  NamedTensors of_model;
  for (const auto& [name, tensor] : tensors) (name.starts_with("objective.") ? file.weights : of_model)[name] = tensor;
  model.load_state(of_model, origin);
  file.model = model.settings();
  file.weights.merge(model.state_dict());
  for (const char* name : {"logit_scale", "logit_bias"})
    if (const auto found = tensors.find(name); found != tensors.end())
      file.weights[name] = found->second.to(at::kFloat).clone();
  if (!file.model.text || !reads_clip_tokens(file.model)) return file;
  file.tokenizer = clip_tokenizer(*file.model.text);
  file.vocabulary = io::read_file(config::clip_vocabulary_file());
  return file;
}

std::map<std::string, at::Tensor> open_clip_tensors(const std::string& weights, const std::map<std::string, at::Tensor>& own,
                                                    const ForeignModel& foreign) {
  std::map<std::string, at::Tensor> tensors = load_weights(weights);
  // Removes numbers that OpenAI's TorchScript files store as tensors, because the model settings contain the same values.
  for (const char* name : {"input_resolution", "context_length", "vocab_size"}) tensors.erase(name);
  std::erase_if(tensors, [](const auto& item) { return item.first.ends_with("attn_mask"); });  // masks are computed, not learned
  merge_value_copies(tensors, own, weights);
  return own_tensors(foreign, tensors, own, weights);
}

std::map<std::string, at::Tensor> open_clip_tensors(const std::string& weights, const std::map<std::string, at::Tensor>& own) {
  return open_clip_tensors(weights, own, described_beside(weights).value_or(ForeignModel{}));
}

ModelFile from_open_clip(const std::string& weights, const ForeignModel& foreign) {
  ModelFile file = from_named_tensors(open_clip_tensors(weights, DualEncoder(foreign.model).state_dict(), foreign), foreign.model, weights);
  if (foreign.tokenizer_in_folder) {
    file.tokenizer = {};
    file.vocabulary.clear();
  }
  return file;
}

ModelFile from_open_clip(const std::string& weights, const ModelSettings& model) {
  ForeignModel foreign = described_beside(weights).value_or(ForeignModel{});
  foreign.model = model;
  foreign.tokenizer_in_folder = false;
  return from_open_clip(weights, foreign);
}

ModelFile load_open_clip_checkpoint(const std::string& weights, const ForeignModel& foreign) {
  if (foreign.tokenizer_in_folder) return from_open_clip(weights, foreign);
  if (!reads_clip_tokens(foreign.model))
    user_error(weights, ": no tokenizer is known for it: its text tower has no room for CLIP's ", kClipVocabulary, " byte pairs");
  return from_open_clip(weights, foreign);
}

}  // namespace tessera
