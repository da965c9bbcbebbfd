#include "src/training/run/epochs.h"

#include <cmath>
#include <iomanip>
#include <sstream>

#include <ATen/ATen.h>

#include "src/distributed/agreement.h"
#include "src/remote/store.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/data/loading/loader.h>

namespace tessera {
namespace {

constexpr double kShareWorthTelling = 0.005;

std::int64_t steps_of_epochs(const Config& config, int ranks) {
  if (config.data.loader.balance)
    user_error("training.epochs: with data.loader.balance, the number of an epoch's samples is random: set training.steps instead");
  remote::use_settings(config.data.cache);
  const std::shared_ptr<const Source> source = sources().make(config.data.train, "data.train");
  const EpochLength epoch = epoch_length(source, config.data.loader, ranks);
  const std::int64_t per_step = config.training.accumulation * epoch.batches_per_update;
  const double steps =
      *config.training.epochs * static_cast<double>(epoch.batches) / static_cast<double>(per_step);
  const std::int64_t rounded = std::max<std::int64_t>(1, std::llround(steps));
  log::info("training.epochs ", *config.training.epochs, " of ", source->describe(), ": ", with_thousands(epoch.batches),
            " batches of ", config.data.loader.batch_size, ranks > 1 ? concat(" on each of ", ranks, " ranks") : "",
            " per epoch, ", with_thousands(rounded), " steps");
  return rounded;
}

}  // namespace

std::optional<std::string> shorter_epochs(const TrainingSettings& settings, std::int64_t good, std::int64_t bad) {
  const double share = static_cast<double>(bad) / static_cast<double>(std::max<std::int64_t>(1, good + bad));
  if (settings.counted_epochs == 0 || share < kShareWorthTelling || share >= 1) return std::nullopt;
  std::ostringstream out;
  out << std::setprecision(3) << "training.epochs: " << 100 * share << "% of the samples are unusable, so epochs are shorter: "
      << with_thousands(settings.steps) << " steps are " << settings.counted_epochs / (1 - share) << " epochs instead of "
      << settings.counted_epochs;
  return out.str();
}

Config with_rank_batch(Config config, int ranks) {
  const TrainingSettings& training = config.training;
  if (!training.global_batch) return config;
  const std::int64_t global = *training.global_batch, each = ranks * training.accumulation, fits = global / each * each;
  if (fits == global) {
    config.data.loader.batch_size = global / each;
    return config;
  }
  std::string other_ranks;
  const std::int64_t shared = global % training.accumulation == 0 ? global / training.accumulation : 0;
  if (shared > 0) {
    std::int64_t fewer = ranks, more = ranks;
    while (shared % --fewer != 0) {
    }
    while (more < shared && shared % ++more != 0) {
    }
    other_ranks = concat(", or start ", fewer, more > ranks ? concat(" or ", more) : "", more > ranks || fewer > 1 ? " processes" : " process");
  }
  user_error("training.global_batch is ", global, ", which cannot be divided evenly among ", ranks, ranks == 1 ? " process" : " processes",
             training.accumulation > 1 ? concat(" x training.accumulation ", training.accumulation) : "", ": set it to ",
             fits > 0 ? concat(fits, " or ") : "", fits + each, other_ranks);
}

std::int64_t update_samples(const Config& config, int ranks) {
  return config.training.global_batch.value_or(config.data.loader.batch_size * config.training.accumulation * ranks);
}

Config with_steps(Config config, int ranks) {
  config = with_rank_batch(std::move(config), ranks);
  if (!config.training.epochs) return config;
  config.training.steps = steps_of_epochs(config, ranks);
  config.training.counted_epochs = *config.training.epochs;
  config.training.epochs.reset();
  return config;
}

Config with_steps(const Config& config, const ProcessGroup& group) {
  Config out = with_rank_batch(config, group.size());
  if (!config.training.epochs) return out;
  run_on_rank0(group, "counting the steps of training.epochs", [&] {
    out = with_steps(config, group.size());
    return true;
  });
  out.training.steps = std::stoll(group.broadcast_text(std::to_string(out.training.steps)));
  out.training.counted_epochs = *config.training.epochs;
  out.training.epochs.reset();
  return out;
}

}  // namespace tessera
