#include <algorithm>

#include "src/data/data_fingerprint.h"
#include "src/training/restore.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

bool allows_other_data(const std::vector<std::string>& allowed) {
  constexpr const char* key = "data.train";
  return std::ranges::any_of(allowed,
                             [&](const std::string& each) { return stands_for(each, key) || stands_for(key, each); });
}

// Returns the micro-batch that a checkpoint's configuration contains. A resumed run with micro_batch `auto` keeps the number that was
// chosen when the run first started.
config::SamplesAtATime micro_batch_of(const std::string& yaml, const std::string& folder) {
  const config::Node tree = config::parse_yaml(yaml, folder);
  const config::Node* training = tree.find("training");
  const config::Node* node = training != nullptr ? training->find("micro_batch") : nullptr;
  return node != nullptr ? config::Value<config::SamplesAtATime>::read(*node, "training.micro_batch", {}) : config::SamplesAtATime{};
}

}  // namespace

ResumeChanges apply_checkpoint(TrainingRun& run, Config& config, const ProcessGroup& group,
                               const Checkpoint& checkpoint, const std::string& folder,
                               const std::vector<std::string>& allowed, bool other_data) {
  const RunState& state = checkpoint.state;
  const RankCounts ranks{static_cast<int>(std::max<std::ptrdiff_t>(1, std::ssize(state.ranks))), group.size()};
  const bool same_ranks = ranks.before == ranks.now;
  ResumeChanges changes = resume_changes(checkpoint.config, config, allowed, ranks);
  if (!changes.refused.empty()) user_error(folder, ": ", refusal(changes.refused));
  // On another number of ranks, another number of samples may fit.
  if (config.training.micro_batch.automatic && same_ranks) config.training.micro_batch = micro_batch_of(checkpoint.config, folder);
  if (run.tokenizer && checkpoint.model.vocabulary != run.tokenizer->vocabulary_bytes())
    user_error(folder, ": was trained with a different vocabulary than the file that tokenizer names now");
  run.published = checkpoint.model.published;
  load_weights(*run.model, *run.objective, checkpoint.model.weights, folder + "/model.safetensors");
  if (checkpoint.parts.empty())
    run.optimizer->load_state(checkpoint.optimizer, folder + "/state.safetensors");
  else
    run.optimizer->load_state(checkpoint.parts, checkpoint.optimizer.at("step").item<std::int64_t>(), folder);
  if (run.ema && checkpoint.ema.empty())
    run.ema->restart();
  else if (run.ema)
    run.ema->load(checkpoint.ema, folder + "/ema.safetensors");
  if (run.teacher && !run.teacher->frozen()) {
    const std::string path = folder + "/teacher.safetensors";
    if (checkpoint.teacher.empty()) user_error(path, ": missing, but the objective keeps a teacher");
    run.teacher->ema.load(checkpoint.teacher, path);
  }
  if (other_data)
    run.loader->seek({state.data.epoch + 1, 0});
  else
    run.loader->seek(same_ranks && !state.ranks.empty() ? state.ranks[static_cast<std::size_t>(group.rank())] : state.data);
  return changes;
}

std::string check_data(const TrainingRun& run, const Checkpoint& checkpoint, const std::string& folder,
                       const std::vector<std::string>& allowed) {
  if (checkpoint.data.empty()) return {};
  std::string difference =
      first_difference(fingerprints_from_json(checkpoint.data), fingerprints_from_json(run.data_fingerprint));
  if (!difference.empty() && !allows_other_data(allowed))
    user_error(folder, ": was trained on other data than data.train names now: ", difference,
               ": use the same data, allow this change with --allow-changes data.train, or choose another run.folder");
  return difference;
}

std::string check_tuning(const TrainingRun& run, const Checkpoint& checkpoint, const std::string& folder, bool deterministic) {
  if (checkpoint.tuning.empty() || run.tuning.empty() || checkpoint.tuning == run.tuning) return {};
  const std::string difference = concat("was trained with the tuning table ", checkpoint.tuning, ", and this run uses ", run.tuning);
  if (!deterministic) return concat(folder, ": ", difference, ": results differ by rounding");
  user_error(folder, ": ", difference, ": with training.deterministic they must be the same: name the first table's file in ",
             "TESSERA_TUNING, or resume with training.deterministic=false and --allow-changes training.deterministic");
}

}  // namespace tessera
