#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include <tessera/batch.h>
#include <tessera/data/image/image_settings.h>
#include <tessera/preprocessing.h>
#include <tessera/sample.h>

namespace tessera {

/// Returns the height and width that the loader gives to each pixel view in `needs`. Throws UserError if a view is not configured.
std::map<std::string, config::Size> image_view_sizes(const Preprocessing& preprocessing, const ImageSettings& settings,
                                                     const Needs& needs);

/// Returns a function that makes a sample's training image (decoding, random crop, augmentation) and discards it, so that
/// benchmarks can time the loader's work per image. It throws SampleError naming the key.
std::function<void(const Sample& sample, std::int64_t index)> training_image_work(const Preprocessing& preprocessing,
                                                                                   const ImageSettings& settings);

}  // namespace tessera
