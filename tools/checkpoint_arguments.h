#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/command_line.h"
#include <tessera/models/checkpoint_options.h>

namespace tessera::tools {

/// Adds the options that say how a checkpoint is read, which have the same form and help in all programs.
inline void add_checkpoint_options(CLI::App& app, CheckpointOptions& options) {
  app.add_option("--architecture", options.architecture,
                 "OpenCLIP's name of the checkpoint's model (such as ViT-B-32; tessera-convert --list shows the names), needed if neither "
                 "open_clip_config.json next to it nor open_clip_train's params.txt one folder above describes the model");
  const auto set_size = [&options](const std::vector<std::int64_t>& sides) {
    if (sides.size() > 2) throw CLI::ValidationError("--image-size", "expected one number, or HEIGHT,WIDTH");
    options.image_size = config::Size(sides.front(), sides.back());
  };
  app.add_option_function<std::vector<std::int64_t>>(
         "--image-size", set_size,
         "pixels: the side of a square, or HEIGHT,WIDTH, instead of the model's own size; learned positions are resampled")
      ->type_name("N")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 65536));
  app.add_option("--state", options.state,
                 "key of the state dict to read, if a PyTorch file has several (such as model_ema). Default: state_dict, model_state_dict "
                 "or model");
}

}  // namespace tessera::tools
