// How a run begins: resumed or fresh, and what is said about it.
#include <ATen/Parallel.h>

#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/distributed/agreement.h>
#include <tessera/training/restore.h>
#include <tessera/training/run/image_features.h>
#include <tessera/training/trainer.h>

namespace tessera {
void Trainer::restore_or_initialize(const std::string& resume) {
  // Rank 0 decides; the others read what it has chosen.
  std::optional<std::pair<std::string, Checkpoint>> chosen;
  run_on_rank0(group_, "looking for a checkpoint", [&] {
    chosen = checkpoints_.choose(resume);
    return true;
  });
  const std::string folder = group_.broadcast_text(chosen ? chosen->first : "");
  run_on_all_ranks(group_, "reading the checkpoint", [&] {
    if (!group_.first() && !folder.empty()) chosen = {folder, load_checkpoint(folder)};
    if (chosen) {
      restore(chosen->second, chosen->first);
    } else {
      load_initial_weights(*run_.model, *run_.objective, config_.start);
      monitor_.resume_at(0);
    }
  });
  const std::map<std::string, at::Tensor> weights = weights_of(*run_.model, *run_.objective);
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : weights) tensors.push_back(tensor);
  broadcast_tensors(tensors, group_);
  run_on_rank0(group_, "checking the image features", [&] { return check_feature_weights(run_), true; });
  if (run_.ema && !chosen) run_.ema->restart();
  if (run_.teacher && !chosen) run_.teacher->ema.restart();
}

void Trainer::restore(const Checkpoint& checkpoint, const std::string& folder) {
  apply_checkpoint(run_, config_, group_, checkpoint, folder);
  state_ = checkpoint.state;
  state_.ranks.clear();
  scale_.restore(state_.loss_scale);
  monitor_.resume_at(state_.step);
  checkpoints_.resumed_from(folder, state_.step);
  log::info("resumed from ", folder, ": step ", state_.step, ", epoch ", state_.data.epoch, ", sample ",
            state_.data.cursor);
  const auto there = config::parse_yaml(checkpoint.config, folder);
  const config::Node* training = there.find("training");
  const config::Node* steps = training != nullptr ? training->find("steps") : nullptr;
  if (steps != nullptr && steps->text() != std::to_string(config_.training.steps))
    log::warning("training.steps was ", steps->text(), " and is now ", config_.training.steps,
                 ": the learning-rate schedule follows the new length from here on");
}

void Trainer::print_plan() const {
  const std::int64_t batch = config_.data.loader.batch_size, sources = run_.loader->batches_per_update();
  const std::int64_t samples = batch * micro_batches(config_, run_);
  const std::string of_each = sources > 1 ? concat(" x ", sources, " sources") : "";
  const std::string ranks = group_.size() == 1 ? "" : concat(" x ", group_.size(), " ranks");
  log::info("run ", folder_, " on ", run_.device.str(), ranks, group_.alone() ? "" : " over " + group_.backend(), ", ",
            config_.training.precision, ", ", at::get_num_threads(), " threads");
  log::info("model: image tower ", config_.model.image.encoder.name, ", text tower ",
            config_.model.text ? config_.model.text->encoder.name : "none", "; objective ", config_.objective.name,
            ", optimizer ", config_.optimizer.name);
  log::info("parameters ", describe(count_parameters(run_)));
  log::info("data: ", run_.train->describe(), "; ", with_thousands(samples * group_.size()), " samples a step (", batch,
            " x ", config_.training.accumulation, of_each, ranks, "), ",
            with_thousands(run_.loader->batches_per_epoch()), " batches an epoch; ",
            with_thousands(config_.training.steps), " steps, from step ", state_.step);
  if (run_.features)
    log::info("features of the image encoder: ", with_thousands(run_.features->manifest().samples), " pictures in ",
              run_.features->path(), ", ", run_.features->manifest().dtype);
}

}  // namespace tessera
