#include <algorithm>

#include <tessera/base/error.h>
#include <tessera/training/restore.h>

namespace tessera {
namespace {

void check_settings(const Config& config, const Checkpoint& checkpoint, const std::string& folder) {
  const std::vector<std::string> other = differences(checkpoint.config, config);
  if (other.empty()) return;
  const std::vector<std::string> first(other.begin(), other.begin() + std::min<std::ptrdiff_t>(3, std::ssize(other)));
  std::string list;
  for (const std::string& each : first) list += (list.empty() ? "" : "; ") + each;
  if (other.size() > first.size()) list += concat("; and ", other.size() - first.size(), " more");
  user_error(folder, ": was trained with other settings: ", list, ": give the same ones, or choose another run.folder");
}

// What was chosen for the run's first steps holds for all of them.
MicroBatch micro_batch_of(const std::string& yaml, const std::string& folder) {
  const config::Node tree = config::parse_yaml(yaml, folder);
  const config::Node* training = tree.find("training");
  const config::Node* node = training != nullptr ? training->find("micro_batch") : nullptr;
  return node != nullptr ? config::Value<MicroBatch>::read(*node, "training.micro_batch", {}) : MicroBatch{};
}

}  // namespace

void apply_checkpoint(TrainingRun& run, Config& config, const ProcessGroup& group, const Checkpoint& checkpoint,
                      const std::string& folder) {
  check_settings(config, checkpoint, folder);
  if (config.training.micro_batch.automatic) config.training.micro_batch = micro_batch_of(checkpoint.config, folder);
  if (run.tokenizer && checkpoint.model.vocabulary != run.tokenizer->vocabulary_bytes())
    user_error(folder, ": was trained with another vocabulary than the file that tokenizer names now");
  load_weights(*run.model, *run.objective, checkpoint.model.weights, folder + "/model.safetensors");
  run.optimizer->load_state(checkpoint.optimizer, folder + "/state.safetensors");
  if (run.ema) run.ema->load(checkpoint.ema, folder + "/ema.safetensors");
  if (run.teacher) {
    const std::string path = folder + "/teacher.safetensors";
    if (checkpoint.teacher.empty()) user_error(path, ": missing, and the objective keeps a teacher");
    run.teacher->ema.load(checkpoint.teacher, path);
  }
  const RunState& state = checkpoint.state;
  const bool same_ranks = std::ssize(state.ranks) == group.size();
  run.loader->seek(same_ranks ? state.ranks[static_cast<std::size_t>(group.rank())] : state.data);
}

}  // namespace tessera
