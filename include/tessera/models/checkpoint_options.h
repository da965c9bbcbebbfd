#pragma once

#include <optional>
#include <string>

#include <tessera/config/fields.h>

namespace tessera {

/// What a user says about a checkpoint, beyond its path.
struct CheckpointOptions {
  std::string architecture{};                // OpenCLIP's name of the model (ViT-B-32); empty: the files next to the weights describe it
  std::optional<config::Size> image_size{};  // instead of the model's own; learned positions are then resampled
  std::string state{};                       // key of the state dict in a PyTorch file; empty: see io::load_pytorch_file()
};

}  // namespace tessera
