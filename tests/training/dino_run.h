#pragma once

#include <string>
#include <vector>

#include <tessera/training/config/config.h>

namespace tessera {

/// A run of 6 steps of `dino` on shapes with a tiny image tower and no text: 2 + 2 crops, its last layer frozen in the
/// first two updates, with a schedule of weight decay and clipping by tensor.
Config dino_config(const std::string& run, const std::vector<std::string>& overrides = {});

/// The same with texts and two contrasts beside it, as SILC has them (Naeem et al. 2023).
Config silc_config(const std::string& run, const std::vector<std::string>& overrides = {});

/// SigLIP 2's second stage (Tschannen et al. 2025) without captioning: the sigmoid loss with self-distillation and masked
/// prediction, and KoLeo on the small crops.
Config siglip2_config(const std::string& run, const std::vector<std::string>& overrides = {});

/// dino_config with an objective that is `dino` but for what kill_dino_at() says.
Config killed_dino_config(const std::string& run, const std::vector<std::string>& overrides = {});

/// siglip2_config whose self_distillation is that objective.
Config killed_siglip2_config(const std::string& run, const std::vector<std::string>& overrides = {});

/// This process is killed (SIGKILL) in the forward pass of that objective after so many updates.
void kill_dino_at(std::int64_t step);

}  // namespace tessera
