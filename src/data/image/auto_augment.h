#pragma once

#include <string_view>

#include <tessera/base/random.h>
#include <tessera/data/image/augmentation.h>
#include <tessera/data/sample.h>

namespace tessera {

/// Applies an operation of AutoAugment or RandAugment, given by its name in torchvision ("ShearX", "Posterize", ...). Geometric
/// operations use nearest neighbor sampling and fill with black. `magnitude` is in the operation's own unit; operations without
/// a magnitude ignore it.
void apply_operation(Image& image, std::string_view name, double magnitude);

/// Returns the magnitude of an operation for bin `bin` of `bins`, before its sign is drawn; 0 for operations without a
/// magnitude.
double magnitude_of(std::string_view name, std::int64_t bin, std::int64_t bins, std::int64_t height,
                    std::int64_t width);

void rand_augment(Image& image, const RandAugment& settings, Random& random);
/// Applies AutoAugment with the policy learned on ImageNet (Cubuk et al., 2019).
void auto_augment(Image& image, Random& random);

}  // namespace tessera
