#pragma once

#include <string>
#include <vector>

#include <tessera/training/config/config.h>

namespace tessera {

/// Returns a run of 6 steps of `dino` on shapes with a tiny image tower and no text: 2 global and 2 local crops, the last
/// layer frozen in the first two updates, a weight decay schedule, and gradient clipping per tensor.
Config dino_config(const std::string& run, const std::vector<std::string>& overrides = {});

/// The same with texts and two contrastive losses, as in SILC (Naeem et al. 2023).
Config silc_config(const std::string& run, const std::vector<std::string>& overrides = {});

/// SigLIP 2's second stage (Tschannen et al. 2025) without captioning: the sigmoid loss with self-distillation and masked
/// prediction, and KoLeo on the small crops.
Config siglip2_config(const std::string& run, const std::vector<std::string>& overrides = {});

/// Returns dino_config with an objective that is `dino` until the step set by kill_dino_at().
Config killed_dino_config(const std::string& run, const std::vector<std::string>& overrides = {});

/// Returns siglip2_config with that objective in place of self_distillation.
Config killed_siglip2_config(const std::string& run, const std::vector<std::string>& overrides = {});

/// Kills this process (SIGKILL) in the forward pass of that objective after `step` updates.
void kill_dino_at(std::int64_t step);

}  // namespace tessera
