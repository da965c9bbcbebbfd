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

}  // namespace tessera
