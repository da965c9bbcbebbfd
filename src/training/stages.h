#pragma once

#include <string>
#include <utility>
#include <vector>

#include "src/training/trainer.h"
#include <tessera/training/config/config.h>

namespace tessera {

/// A run, or one stage of a run with several stages.
struct Stage {
  std::string name;  // empty if the run has no stages
  Config config;
  bool follows = false;  // whether the stage starts from the final weights of the previous stage
  std::vector<std::string> overruled{};  // keys of overrides that have no effect, because the stage sets the same keys
  std::string moved{};  // a line about the folder of config.yaml, if it was moved or copied
};

/// Reads a configuration whose list `stages:` describes consecutive runs. Each entry has a `name`; its other settings override the file's
/// settings, as with `extends`. Stage NAME has the run folder RUN/NAME, copies its checkpoints to checkpoint.copy_to/NAME, and starts from
/// the final weights of the previous stage, unless it has its own `start`. A file without `stages` is one stage without a name. Overrides
/// apply to the file; to override a stage's setting, use "stages.0.training.steps=5". `without_vocabulary` has the same meaning as in
/// resolve_config(). Throws UserError like load_config(), and if stages have no name or share a name.
std::vector<Stage> load_stages(const std::string& path, const std::vector<std::string>& overrides = {},
                               bool without_vocabulary = false);

/// Warns about a run folder that was moved or copied, and about overrides that have no effect because stages set the same keys; one line
/// per key.
void warn_of_stages(const std::vector<Stage>& stages);

/// Trains one stage after the other. With resume.from "auto", skips the stages that earlier sessions trained and evaluated. Returns how the
/// last started stage ended, and the signal that stopped it (0 if there was none). Throws like Trainer; also throws UserError if
/// `resume.from` names a checkpoint although there are several stages.
std::pair<Outcome, int> run_stages(const std::vector<Stage>& stages, const Resume& resume,
                                   const ProcessGroup& group = {});

}  // namespace tessera
