#pragma once

#include <tessera/distributed/process_group.h>
#include <tessera/training/config/config.h>

namespace tessera {

/// The configuration with training.steps in place of training.epochs, if that is set: the steps that so many processes
/// make in so many epochs of the training data, to the nearest whole one. Opens the data. Throws UserError: they cannot be
/// read, or the run becomes shorter than its warm-up.
Config with_steps(Config config, int ranks);

/// The same for the ranks of a group, all of which must call it: rank 0 opens the data.
Config with_steps(const Config& config, const ProcessGroup& group);

}  // namespace tessera
