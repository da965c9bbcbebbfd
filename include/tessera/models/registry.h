#pragma once

#include <tessera/models/tower.h>

namespace tessera {

/// The registry of encoders, which are built from their settings. An image encoder gets the image size from its own setting image_size.
using EncoderRegistry = config::Registry<Encoder>;

/// What a read-out must know about its tower.
struct ReadOutContext {
  std::int64_t width = 0;      // width of the tokens
  std::int64_t tokens = 0;     // number of tokens for an input of the configured size; 0 if the number varies
  config::Size grid = {0, 0};  // rows and columns of the patches; {0, 0} for text
  bool class_token = false;    // whether the encoder returns a class token
  Modality modality = Modality::image;
  std::string path = "readout";  // path of the read-out's settings in the configuration, for error messages
  SharedParameters* shared = nullptr;
};
using ReadOutRegistry = config::Registry<ReadOut, const ReadOutContext&>;

/// What a projection must know about its tower.
struct ProjectionContext {
  std::int64_t pooled_width = 0;  // width of the read-out's vector
  std::int64_t token_width = 0;   // width of the encoder's tokens
  Modality modality = Modality::image;
  std::string path = "projection";
  SharedParameters* shared = nullptr;
};
using ProjectionRegistry = config::Registry<Projection, const ProjectionContext&>;

EncoderRegistry& encoders();
ReadOutRegistry& readouts();
ProjectionRegistry& projections();

}  // namespace tessera
