#pragma once

#include <tessera/models/tower.h>

namespace tessera {

/// Builds an encoder from its settings. Image encoders get the picture size from the settings' own image_size.
using EncoderRegistry = config::Registry<Encoder>;

/// What a read-out may know of its tower.
struct ReadOutContext {
  std::int64_t width = 0;   // of the tokens
  std::int64_t tokens = 0;  // how many there are at the configured size; 0 = varies
};
using ReadOutRegistry = config::Registry<ReadOut, const ReadOutContext&>;

EncoderRegistry& encoders();
ReadOutRegistry& readouts();

}  // namespace tessera
