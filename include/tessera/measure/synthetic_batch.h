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

/// Returns a batch of `size` samples of random content in the model's input shapes, with all views in `needs`, for measurements
/// without data. Texts have the model's context length, without padding. `image_sizes` gives the sizes of pixel views that
/// differ from the model's image size. `texts` gives the number of texts per image for views of several texts (default 8); there
/// are as many boxes as phrases.
Batch synthetic_batch(const DualEncoder& model, const Needs& needs, std::int64_t size, const at::Device& device,
                      const std::map<std::string, config::Size>& image_sizes = {},
                      const std::map<std::string, std::int64_t>& texts = {});

/// Shortens each text of the view to its number of tokens in `lengths` (if images have K captions, all K of an image), and the
/// view to the longest text.
void shorten_texts(TowerInput& view, const std::vector<std::int64_t>& lengths);

}  // namespace tessera
