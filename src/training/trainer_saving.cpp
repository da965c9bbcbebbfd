// How a run saves its state.
#include <tuple>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/distributed/agreement.h>
#include <tessera/training/trainer.h>

namespace tessera {

void Trainer::save_checkpoint(bool must) {
  heartbeat_.enter("saving", state_.step);
  last_save_ = std::chrono::steady_clock::now();
  if (last_saved_ == state_.step) {
    if (!must) return;
    // The save of this step may still be under way, or have failed.
    const bool saved = run_on_rank0(group_, "saving the checkpoint", [&] {
      return collect_checkpoint(false) && !last_good_.empty() && step_of(last_good_) == state_.step;
    });
    if (saved) return;
  }
  state_.seconds = seconds_trained();
  Checkpoint checkpoint = gather_checkpoint();
  if (run_on_rank0(group_, "saving the checkpoint", [&] { return write_checkpoint(must, std::move(checkpoint)); }))
    last_saved_ = state_.step;
}

bool Trainer::write_checkpoint(bool must, Checkpoint checkpoint) {
  collect_checkpoint(false);
  writer_.begin(std::move(checkpoint));
  writing_step_ = state_.step;
  show("running");
  return config_.checkpoint.background && !must ? true : collect_checkpoint(must);
}

Checkpoint Trainer::gather_checkpoint() {
  gather_positions();
  Checkpoint checkpoint;
  checkpoint.config = to_yaml(config_);
  checkpoint.state = state_;
  checkpoint.optimizer = run_.optimizer->gather_state();
  if (run_.ema) checkpoint.ema = run_.ema->averages();
  if (run_.teacher) checkpoint.teacher = run_.teacher->ema.averages();
  checkpoint.model = {config_.model,
                      config_.tokenizer.value_or(config::ModuleSettings{}),
                      run_.tokenizer ? run_.tokenizer->vocabulary_bytes() : "",
                      weights_of(*run_.model, *run_.objective),
                      {{"config", checkpoint.config}, {"step", std::to_string(state_.step)}}};
  return checkpoint;
}

bool Trainer::collect_checkpoint(bool must) {
  if (!writer_.pending()) return true;
  try {
    last_good_ = writer_.collect();
    return true;
  } catch (const UserError& error) {
    const std::string kept =
        last_good_.empty() ? "there is no earlier checkpoint" : "the checkpoint before is " + last_good_;
    if (must) user_error("step ", writing_step_, " is not saved: ", error.what(), "; ", kept);
    log_.clear();
    log::error("step ", writing_step_, " is not saved: ", error.what(), "; ", kept,
               "; training goes on and the next save tries again");
    return false;
  }
}

void Trainer::gather_positions() {
  if (group_.alone()) return;
  const DataPosition own = run_.loader->position();
  const at::Tensor all = group_.all_gather(at::tensor({own.epoch, own.cursor}, at::kLong)).view({group_.size(), 2});
  state_.ranks.clear();
  state_.data = own;
  for (int rank = 0; rank < group_.size(); ++rank) {
    const DataPosition there{all[rank][0].item<std::int64_t>(), all[rank][1].item<std::int64_t>()};
    state_.ranks.push_back(there);
    if (std::tie(there.epoch, there.cursor) > std::tie(state_.data.epoch, state_.data.cursor)) state_.data = there;
  }
}

}  // namespace tessera
