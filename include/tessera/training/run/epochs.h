#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tessera/distributed/process_group.h>
#include <tessera/training/config/config.h>

namespace tessera {

/// The configuration with training.steps in place of training.epochs, if that is set: the steps that so many processes
/// make in so many epochs of the training data, to the nearest whole one. Opens the data. Throws UserError: they cannot be
/// read, or the run becomes shorter than its warm-up.
Config with_steps(Config config, int ranks);

/// The same for the ranks of a group, all of which must call it: rank 0 opens the data.
Config with_steps(const Config& config, const ProcessGroup& group);

/// The line for a run whose steps were taken from training.epochs and whose samples turn out good and bad like this: a
/// bad one is skipped, so that the steps are more epochs. Nothing where hardly any is bad, or steps were given.
std::optional<std::string> shorter_epochs(const TrainingSettings& settings, std::int64_t good, std::int64_t bad);

}  // namespace tessera
