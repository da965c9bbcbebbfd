#pragma once

#include <string>
#include <vector>

#include <tessera/training/config/config.h>

namespace tessera {

/// Returns a configuration that trains `dino` for 6 steps on shapes, with a tiny image tower and no text. It has 2 global and 2
/// local crops, freezes the last layer in the first two updates, schedules the weight decay, and clips gradients per tensor.
Config dino_config(const std::string& run, const std::vector<std::string>& overrides = {});

/// Returns dino_config with texts and two contrastive losses, as in SILC (Naeem et al. 2023).
Config silc_config(const std::string& run, const std::vector<std::string>& overrides = {});

/// Returns a run like SigLIP 2's second stage (Tschannen et al. 2025) without captioning: the sigmoid loss, self-distillation,
/// masked prediction, and KoLeo on the small crops.
Config siglip2_config(const std::string& run, const std::vector<std::string>& overrides = {});

/// Returns dino_config with an objective that acts like `dino` until the step that kill_dino_at() sets.
Config killed_dino_config(const std::string& run, const std::vector<std::string>& overrides = {});

/// Returns siglip2_config with the objective of killed_dino_config in place of self_distillation.
Config killed_siglip2_config(const std::string& run, const std::vector<std::string>& overrides = {});

/// Makes the objective of the killed_* configurations kill this process (SIGKILL) in its forward pass after `step` updates.
void kill_dino_at(std::int64_t step);

}  // namespace tessera
