#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include <tessera/batch.h>
#include <tessera/config/fields.h>
#include <tessera/models/dual_encoder.h>

namespace tessera {

/// Returns a batch of `size` random samples with the model's input shapes and all views in `needs`, for measurements without data. Texts
/// have the model's context length, without padding. `image_sizes` maps views of pixels to their image sizes, if these differ from the
/// model's. `texts` maps views of several texts to their number of texts per image (default 8). There are as many boxes as phrases.
Batch synthetic_batch(const DualEncoder& model, const Needs& needs, std::int64_t size, const at::Device& device,
                      const std::map<std::string, config::Size>& image_sizes = {},
                      const std::map<std::string, std::int64_t>& texts = {});

/// Shortens each text of the view to its number of tokens in `lengths`, and the whole view to the length of its longest text. If images
/// have K captions, one entry of `lengths` applies to all K captions of an image.
void shorten_texts(TowerInput& view, const std::vector<std::int64_t>& lengths);

}  // namespace tessera
