#include <cmath>
#include <filesystem>

#include "src/foreign/published_tokenizer.h"
#include "src/measure/machine.h"
#include "src/foreign/foreign_model.h"
#include "src/foreign/open_clip.h"
#include "src/remote/local_copy.h"
#include <tessera/base/error.h>
#include <tessera/evaluation/inference.h>
#include <tessera/objectives/contrastive_objective.h>

namespace tessera {

namespace {

/// Stands in for a published model's tokenizer if the tokenizer cannot be read. The model can still embed images; encoding a text throws an
/// error with the reason.
class UnreadTokenizer : public Tokenizer {
 public:
  explicit UnreadTokenizer(std::string reason) : reason_(std::move(reason)) {}
  std::vector<std::int64_t> encode(std::string_view) const override { user_error(reason_); }
  std::string decode(const std::vector<std::int64_t>&) const override { user_error(reason_); }
  std::int64_t context_length() const override { user_error(reason_); }
  std::int64_t vocab_size() const override { return 0; }
  std::int64_t pad_id() const override { return 0; }
  std::vector<std::int64_t> special_ids() const override { return {}; }
  std::string name() const override { return "not read"; }
  const std::string& vocabulary_bytes() const override { user_error(reason_); }

 private:
  std::string reason_;
};

/// Reads a checkpoint and sets `out.path` and `out.file`. If the checkpoint is a published folder, also reads the folder's tokenizer.
void read_checkpoint(const std::string& path, const CheckpointOptions& options, InferenceModel& out) {
  const std::string& architecture = options.architecture;
  const auto take_no_architecture = [&](const std::string& described) {
    if (!architecture.empty())
      user_error("--architecture ", architecture, ": ", described, " already describes its model: leave the option out");
  };
  if (is_foreign_folder(path)) {
    take_no_architecture(path);
    out.path = path;
    out.file = load_foreign_model(path, options);
    out.tokenizer_error = take_published_tokenizer(read_foreign_folder(path), path, out.file);
    return;
  }
  if (is_open_clip_checkpoint(path) || (!architecture.empty() && std::filesystem::is_directory(path))) {
    out.path = find_open_clip_weights(path);
    const ForeignModel foreign = open_clip_settings(out.path, options);
    out.file = load_open_clip_checkpoint(out.path, foreign, options.state);
    out.tokenizer_error = take_published_tokenizer(foreign, std::filesystem::absolute(out.path).parent_path().string(), out.file);
    return;
  }
  out.path = find_model_file(path);
  out.file = load_model_file(out.path);  // before options are refused, because a file that is no model describes none
  take_no_architecture(out.path);
  if (!options.state.empty())
    user_error("--state ", options.state, ": ", out.path, " has only one set of weights: leave the option out");
  if (options.image_size) out.file.model = with_image_size(out.file.model, *options.image_size);
}

}  // namespace

InferenceModel load_for_inference(const std::string& name, const std::string& device, const CheckpointOptions& options) {
  const std::string path = remote::local_copy(name);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    user_error("checkpoint ", path, " does not exist: give a model file, a checkpoint folder or a run folder");
  }
  const at::Device chosen = parse_device(device);
  InferenceModel found;
  read_checkpoint(path, options, found);
  if (path != name) found.path = name;
  InferenceModel out = inference_model(std::move(found.file), found.path, found.tokenizer_error);
  out.device = chosen;
  out.model->to(chosen);
  return out;
}

InferenceModel inference_model(ModelFile file, const std::string& path, const std::string& tokenizer_error) {
  InferenceModel out;
  out.path = path;
  out.file = std::move(file);
  out.tokenizer_error = tokenizer_error;
  out.model = build_model(out.file, path);
  if (!out.model->has_text_tower()) return out;
  if (!tokenizer_error.empty()) {
    out.tokenizer = std::make_shared<UnreadTokenizer>(tokenizer_error);
    return out;
  }
  if (out.file.tokenizer.name.empty())
    user_error(path, ": has a text tower but no tokenizer: tessera-convert --settings RUN ", path, " NEW.safetensors adds that of "
               "the run that the weights come from");
  const std::string no_vocabulary =
      concat(path, ": holds no vocabulary for its tokenizer ", out.file.tokenizer.name, ": tessera-convert --vocab FILE ", path,
             " NEW.safetensors adds it, or --settings RUN with the run that the weights come from");
  out.tokenizer =
      tokenizers().make(out.file.tokenizer, "tokenizer", TokenizerContext{out.file.vocabulary, no_vocabulary});
  return out;
}

std::optional<double> stored_logit_scale(const std::map<std::string, at::Tensor>& weights) {
  for (const char* name : {"logit_scale", "objective.logit_scale"}) {
    const auto found = weights.find(name);
    if (found == weights.end() || found->second.numel() != 1) continue;
    const double scale = log_of_scale(found->second.to(at::kDouble).item<double>());
    if (std::isfinite(scale)) return std::exp(scale);
  }
  return std::nullopt;
}

double logit_scale_of(const std::map<std::string, at::Tensor>& weights) {
  return stored_logit_scale(weights).value_or(kUsualScale);
}

}  // namespace tessera
