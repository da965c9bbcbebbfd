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

/// A batch of `size` samples of random contents in the shapes that the model takes, every view that `needs` names in
/// each of them: what a measurement needs where there is no data. Texts are of the model's context length, without
/// padding. image_sizes: of views of pixels that are not of the model's image size. texts: how many of each image the views
/// of several texts hold, 8 if it does not say; there are as many boxes as phrases.
Batch synthetic_batch(const DualEncoder& model, const Needs& needs, std::int64_t size, const at::Device& device,
                      const std::map<std::string, config::Size>& image_sizes = {},
                      const std::map<std::string, std::int64_t>& texts = {});

/// Leaves of each text of the view its first tokens, so many as `lengths` says (of K captions of an image: of each of them),
/// and of the view what the longest needs.
void shorten_texts(TowerInput& view, const std::vector<std::int64_t>& lengths);

}  // namespace tessera
