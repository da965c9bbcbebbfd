#include <filesystem>

#include <nlohmann/json.hpp>

#include "src/io/pytorch_file.h"
#include "src/foreign/architectures.h"
#include "src/foreign/open_clip.h"
#include "src/foreign/open_clip_run.h"
#include "src/models/readouts/sparo.h"
#include "src/models/setting_differences.h"
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/config/shipped.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCheckpointConfig = "open_clip_config.json";
constexpr std::int64_t kClipVocabulary = 49408;

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

/// A run of open_clip_train, and its params.txt.
struct OpenClipRun {
  OpenClipParameters parameters;
  std::string file;

  ForeignModel model() const {
    std::string config;
    try {
      config = open_clip_run_config(parameters).dump();
    } catch (const UserError& error) {
      user_error(file, ": ", error.what());
    }
    return open_clip_model(config, file);
  }
};

/// Returns the run that wrote the weights. Its params.txt lies above the folder `checkpoints`, or next to the weights if somebody copied
/// it. A file of this name that is not OpenCLIP's is no run.
std::optional<OpenClipRun> run_of(const std::string& weights) {
  std::error_code unknown;
  const fs::path folder = fs::absolute(weights).parent_path(), behind_links = fs::weakly_canonical(weights, unknown).parent_path();
  for (const fs::path& place : {folder, folder.parent_path(), behind_links, behind_links.parent_path()}) {
    const std::string file = (place / "params.txt").string();
    if (!fs::is_regular_file(file, unknown)) continue;
    try {
      OpenClipParameters parameters(parse_open_clip_params(io::read_file(file), file));
      if (!parameters.has("model")) continue;
      // open_clip_train prints all its flags. Without them, only a model that OpenCLIP knows shows that the file is not another program's.
      const bool has_flags = parameters.is_given("siglip") || parameters.is_given("force_quick_gelu");
      if (!has_flags && !parameters.text("model").starts_with("local-dir:")) open_clip_architecture(open_clip_model_name(parameters));
      return OpenClipRun{std::move(parameters), file};
    } catch (const UserError&) {  // another program's file
    }
  }
  return std::nullopt;
}

/// Returns the settings of the chosen architecture. If the weights come from a run with this architecture, these are the run's, which may
/// have another image size or activation.
ForeignModel named_settings(const std::string& weights, const CheckpointOptions& options) {
  if (const auto run = run_of(weights); run && open_clip_model_name(run->parameters) == options.architecture) return run->model();
  ForeignModel out = described_architecture(options.architecture);
  if (const auto described = usable_description(weights, options.state))
    if (const auto differences = setting_differences(out.model, described->model); !differences.empty())
      log::warning(weights, ": --architecture ", options.architecture, " contradicts the settings that come with the weights, which are ",
                   "used if the option is left out: ", join_names(differences));
  return out;
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
  const std::vector<std::string> found = weight_files(path);
  if (found.empty()) user_error(path, ": holds no weights: expected open_clip_model.safetensors or a PyTorch file");
  if (found.size() > 1)
    user_error(path, ": holds several weight files, ", join_names(found), ": name one of them");
  return found.front();
}

std::map<std::string, at::Tensor> load_weights(const std::string& path, const std::string& state) {
  // Modules of Lightning and other trainers hold the model in a member.
  std::map<std::string, at::Tensor> tensors =
      io::without_wrappers(io::load_tensors(path, state), {"module.", "model.", "net.", "network.", "clip.", "clip_model."});
  if (tensors.contains("vision_model.embeddings.class_embedding"))
    user_error(path, ": holds Hugging Face's CLIPModel, not OpenCLIP's: take open_clip_model.safetensors of the same "
               "model, or save OpenCLIP's state_dict()");
  return tensors;
}

std::optional<ForeignModel> described_open_clip(const std::string& weights, const std::string& state) {
  const fs::path config = fs::absolute(weights).parent_path() / kCheckpointConfig;
  if (fs::is_regular_file(config)) return open_clip_model(io::read_file(config.string()), config.string());
  if (const auto run = run_of(weights)) return run->model();
  if (!io::is_pytorch_file(weights)) return std::nullopt;
  const auto openai = openai_model(io::load_pytorch_file(weights, state), weights);
  if (!openai) return std::nullopt;
  ForeignModel out;
  out.model = *openai;
  return out;
}

/// Warns if open_clip_config.json next to the weights, which is used, contradicts the parameters of the run that wrote the weights.
void warn_of_other_run(const std::string& weights, const ForeignModel& described) {
  const auto run = run_of(weights);
  if (!run || !fs::is_regular_file(fs::absolute(weights).parent_path() / kCheckpointConfig)) return;
  try {
    if (const auto differences = setting_differences(described.model, run->model().model); !differences.empty())
      log::warning(weights, ": ", kCheckpointConfig, " next to the file is used, but contradicts ", run->file, ": ", join_names(differences));
  } catch (const UserError&) {  // parameters of a model that we do not know
  }
}

std::optional<ForeignModel> usable_description(const std::string& weights, const std::string& state) {
  try {
    return described_open_clip(weights, state);
  } catch (const UserError&) {
    return std::nullopt;
  }
}

ForeignModel open_clip_settings(const std::string& path, const CheckpointOptions& options) {
  const std::string weights = find_open_clip_weights(path);
  const auto described = options.architecture.empty() ? described_open_clip(weights, options.state) : named_settings(weights, options);
  if (!described)
    user_error(weights, ": weights without our settings, and no ", kCheckpointConfig,
               " beside them: say which of OpenCLIP's models they are, --architecture ViT-B-32 (tessera-convert --list "
               "shows the names), or put its configuration there; for weights of a Tessera run, tessera-convert --settings RUN ", weights,
               " OUT.safetensors adds the run's settings");
  ForeignModel out = *described;
  if (options.architecture.empty()) warn_of_other_run(weights, out);
  if (options.image_size) out.model = with_image_size(out.model, *options.image_size);
  return out;
}

ModelFile from_named_tensors(const std::map<std::string, at::Tensor>& tensors, const ModelSettings& settings,
                             const std::string& origin, log::Level resampling) {
  ModelFile file;
  DualEncoder model(settings);
  NamedTensors of_model;
  for (const auto& [name, tensor] : tensors) (name.starts_with("objective.") ? file.weights : of_model)[name] = tensor;
  model.load_state(of_model, origin, resampling);
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
                                                    const ForeignModel& foreign, const std::string& state) {
  std::map<std::string, at::Tensor> tensors = load_weights(weights, state);
  // Removes numbers that OpenAI's TorchScript files store as tensors, because the model settings contain the same values.
  for (const char* name : {"input_resolution", "context_length", "vocab_size"}) tensors.erase(name);
  std::erase_if(tensors, [](const auto& item) { return item.first.ends_with("attn_mask"); });  // masks are computed, not learned
  merge_value_copies(tensors, own, weights);
  return own_tensors(foreign, tensors, own, weights);
}

ModelFile from_open_clip(const std::string& weights, const ForeignModel& foreign, const std::string& state) {
  const NamedTensors own = DualEncoder(foreign.model).state_dict();
  ModelFile file = from_named_tensors(open_clip_tensors(weights, own, foreign, state), foreign.model, weights);
  if (foreign.tokenizer_in_folder) {
    file.tokenizer = {};
    file.vocabulary.clear();
  }
  return file;
}

ModelFile from_open_clip(const std::string& weights, const ModelSettings& model, const std::string& state) {
  ForeignModel foreign = usable_description(weights, state).value_or(ForeignModel{});
  foreign.model = model;
  foreign.tokenizer_in_folder = false;
  return from_open_clip(weights, foreign, state);
}

ModelFile load_open_clip_checkpoint(const std::string& weights, const ForeignModel& foreign, const std::string& state) {
  if (foreign.tokenizer_in_folder) return from_open_clip(weights, foreign, state);
  if (!reads_clip_tokens(foreign.model))
    user_error(weights, ": no tokenizer is known for it: its text tower has no room for CLIP's ", kClipVocabulary, " byte pairs");
  return from_open_clip(weights, foreign, state);
}

}  // namespace tessera
