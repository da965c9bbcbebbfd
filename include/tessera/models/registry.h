#pragma once

#include <tessera/models/tower.h>

namespace tessera {

/// Builds an encoder from its settings. Image encoders get the picture size from the settings' own image_size.
using EncoderRegistry = config::Registry<Encoder>;

/// What a read-out may know of its tower.
struct ReadOutContext {
  std::int64_t width = 0;      // of the tokens
  std::int64_t tokens = 0;     // how many there are at the configured size; 0 = varies
  config::Size grid = {0, 0};  // rows and columns of the patches; {0, 0} for text
  bool class_token = false;    // the encoder gives one
  Modality modality = Modality::image;
  std::string path = "readout";  // where its settings stand, for messages
  SharedParameters* shared = nullptr;
};
using ReadOutRegistry = config::Registry<ReadOut, const ReadOutContext&>;

/// What a projection may know of its tower.
struct ProjectionContext {
  std::int64_t pooled_width = 0;  // what the read-out gives
  std::int64_t token_width = 0;   // what the encoder gives
  Modality modality = Modality::image;
  std::string path = "projection";
  SharedParameters* shared = nullptr;
};
using ProjectionRegistry = config::Registry<Projection, const ProjectionContext&>;

EncoderRegistry& encoders();
ReadOutRegistry& readouts();
ProjectionRegistry& projections();

}  // namespace tessera
