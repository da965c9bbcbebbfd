#include <cmath>
#include <filesystem>

#include <tessera/base/error.h>
#include <tessera/data/tokenizers/published_tokenizer.h>
#include <tessera/evaluation/inference.h>
#include <tessera/models/foreign/foreign_model.h>
#include <tessera/measure/machine.h>
#include <tessera/models/open_clip.h>

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

/// Reads the tokenizer of a published folder into `out`.
void take_tokenizer(const ForeignModel& foreign, const std::string& folder, InferenceModel& out) {
  if (!foreign.tokenizer_in_folder) return;
  const std::string reason = take_published_tokenizer(foreign, folder, out.file);
  if (!reason.empty())
    out.tokenizer = std::make_shared<UnreadTokenizer>(reason);
  else if (!out.file.tokenizer.name.empty())
    out.tokenizer = tokenizers().make(out.file.tokenizer, "tokenizer", TokenizerContext{out.file.vocabulary, folder});
}

/// Reads a checkpoint and sets `out.path` and `out.file`. If the checkpoint is a published folder, also reads the folder's tokenizer.
void read_checkpoint(const std::string& path, const std::string& architecture, InferenceModel& out) {
  const auto take_no_architecture = [&](const std::string& described) {
    if (!architecture.empty())
      user_error("--architecture ", architecture, ": ", described, " already describes its model: leave the option out");
  };
  if (is_foreign_folder(path)) {
    take_no_architecture(path);
    out.path = path;
    out.file = load_foreign_model(path);
    take_tokenizer(read_foreign_folder(path), path, out);
    return;
  }
  if (is_open_clip_checkpoint(path) || (!architecture.empty() && std::filesystem::is_directory(path))) {
    out.path = find_open_clip_weights(path);
    const ForeignModel foreign = open_clip_settings(out.path, architecture);
    out.file = load_open_clip_checkpoint(out.path, foreign);
    take_tokenizer(foreign, std::filesystem::absolute(out.path).parent_path().string(), out);
    return;
  }
  out.path = find_model_file(path);
  take_no_architecture(out.path);
  out.file = load_model_file(out.path);
}

}  // namespace

InferenceModel load_for_inference(const std::string& path, const std::string& device, const std::string& architecture) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    user_error("checkpoint ", path, " does not exist: give a model file, a checkpoint folder or a run folder");
  }
  InferenceModel out;
  out.device = parse_device(device);
  read_checkpoint(path, architecture, out);
  out.model = build_model(out.file, out.path);
  out.model->to(out.device);
  out.model->eval();
  if (!out.model->has_text_tower() || out.tokenizer) return out;
  if (out.file.tokenizer.name.empty()) 
    user_error(out.path, ": has a text tower but no tokenizer: tessera-convert --settings RUN ", out.path, " NEW.safetensors adds that of "
               "the run that the weights come from");
  const std::string no_vocabulary =
      concat(out.path, ": holds no vocabulary for its tokenizer ", out.file.tokenizer.name, ": tessera-convert --vocab FILE ", out.path,
             " NEW.safetensors adds it, or --settings RUN with the run that the weights come from");
  out.tokenizer =
      tokenizers().make(out.file.tokenizer, "tokenizer", TokenizerContext{out.file.vocabulary, no_vocabulary});
  return out;
}

double logit_scale_of(const std::map<std::string, at::Tensor>& weights) {
  for (const char* name : {"logit_scale", "objective.logit_scale"}) {
    const auto found = weights.find(name);
    if (found == weights.end() || found->second.numel() != 1) continue;
    const double scale = std::exp(found->second.to(at::kDouble).item<double>());
    if (std::isfinite(scale)) return scale;
  }
  return 100;
}

}  // namespace tessera
