#pragma once

#include <string>
#include <utility>
#include <vector>

#include <tessera/training/config/config.h>
#include <tessera/training/trainer.h>

namespace tessera {

/// A run, or one part of a run in several.
struct Stage {
  std::string name;  // empty: the run has no stages
  Config config;
  bool follows = false;  // begins with the weights that the stage before ends with
  std::vector<std::string> overruled{};  // keys of overrides that have no effect here: the stage sets them itself
};

/// Reads a configuration whose list `stages:` describes runs that follow one another. Each entry has a `name`, and lays
/// its other settings over those of the file, as a file over the one it extends. Stage NAME has the run folder
/// RUN/NAME, and begins with the weights that the stage before it ends with, unless it has a `start` of its own. A file
/// without `stages` is one stage without a name. Overrides act on the file: "stages.0.training.steps=5".
/// without_vocabulary: as in resolve_config. Throws UserError as load_config, and for stages without a name or with the
/// same one.
std::vector<Stage> load_stages(const std::string& path, const std::vector<std::string>& overrides = {},
                               bool without_vocabulary = false);

/// Warns of overrides that stages overrule, a line for each key.
void warn_of_overruled(const std::vector<Stage>& stages);

/// Trains one stage after the other; one that an earlier session has finished is passed over when resume.from is "auto".
/// Returns how the last one that was begun ended, and the signal that stopped it (0: none). Throws as Trainer, and
/// UserError when `resume.from` names a checkpoint although there are several stages.
std::pair<Outcome, int> run_stages(const std::vector<Stage>& stages, const Resume& resume,
                                   const ProcessGroup& group = {});

}  // namespace tessera
