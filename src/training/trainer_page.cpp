// What the run's page says of it.
#include <numeric>

#include <tessera/measure/machine.h>
#include <tessera/base/host.h>
#include <tessera/base/text.h>
#include <tessera/training/trainer.h>

namespace tessera {

void Trainer::show(const std::string& state, bool good, const std::string& note) {
  RunStatus status{.state = state, .good = good, .note = note, .step = state_.step};
  status.samples = state_.samples;
  status.seconds = state_.seconds;
  status.skipped = run_.loader->statistics().skipped;
  log_.write_page(std::move(status));
}

Outcome Trainer::show(Outcome outcome) {
  switch (outcome) {
    case Outcome::finished:
      show("finished", true, concat("The model is ", last_good_, "/model.safetensors"));
      break;
    case Outcome::interrupted:
      show("interrupted", true, "Stopped by a signal, its state saved: go on with --resume auto");
      break;
    case Outcome::not_finite:
      show("not finite", false,
           "A loss or gradient was NaN or infinite. Last good checkpoint: " +
               (last_good_.empty() ? "none" : last_good_));
      break;
  }
  return outcome;
}

std::vector<std::pair<std::string, std::string>> Trainer::facts() const {
  const LoaderSettings& loader = config_.data.loader;
  const std::int64_t batch = loader.batch_size * runner_.micro_batches() * group_.size();
  return {{"Run folder", folder_},
          {"Objective", config_.objective.name},
          {"Image tower", config_.model.image.encoder.name},
          {"Text tower", config_.model.text ? config_.model.text->encoder.name : "none"},
          {"Parameters trained", with_thousands(std::accumulate(
                                     run_.optimizer->parameters().begin(), run_.optimizer->parameters().end(), 0LL,
                                     [](long long sum, const auto& each) { return sum + each.tensor.numel(); }))},
          {"Optimizer", concat(config_.optimizer.name, ", learning rate ", run_.optimizer->peak_learning_rate())},
          {"Schedule", config_.schedule.schedule},
          {"Samples a step", with_thousands(batch)},
          {"Batches a step", concat(runner_.micro_batches(), " of ", loader.batch_size,
                                    group_.alone() ? "" : concat(" on each of ", group_.size(), " ranks"))},
          {"Precision", config_.training.precision},
          {"Host", host_name()},
          {"Seed", std::to_string(config_.seed)},
          {"Data", run_.train->describe()},
          {"Device", machine_name(run_.device)}};
}

}  // namespace tessera
