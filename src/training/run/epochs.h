#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tessera/distributed/process_group.h>
#include <tessera/training/config/config.h>

namespace tessera {

/// If training.global_batch is set, returns the configuration with the data.loader.batch_size of each of `ranks` ranks. Throws UserError,
/// which names numbers that fit, if the global batch cannot be divided evenly.
Config with_rank_batch(Config config, int ranks);

/// Returns the number of samples of an update on `ranks` ranks (of each source, with a mixture that accumulates).
std::int64_t update_samples(const Config& config, int ranks);

/// Returns with_rank_batch(). If training.epochs is set, also computes training.steps from it: the number of steps that these epochs take on
/// `ranks` ranks, rounded to the nearest integer. For this, it opens the data. Throws UserError if the data cannot be read, or if the run
/// would be shorter than its warm-up.
Config with_steps(Config config, int ranks);

/// Does the same as with_steps(config, ranks) for the ranks of a group. Every rank must call it. Only rank 0 opens the data.
Config with_steps(const Config& config, const ProcessGroup& group);

/// Returns a message if many samples turned out to be bad in a run whose steps were computed from training.epochs. Bad samples are
/// skipped, so the same number of steps covers more epochs. Returns nothing if hardly any samples are bad, or if training.steps was
/// set.
std::optional<std::string> shorter_epochs(const TrainingSettings& settings, std::int64_t good, std::int64_t bad);

}  // namespace tessera
