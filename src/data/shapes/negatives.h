#pragma once

#include <string>
#include <vector>

#include <src/data/shapes/captions.h>
#include <tessera/base/random.h>
#include <tessera/sample.h>

namespace tessera::shapes {

/// Returns captions that are false for the scene and differ from `plan` only in the edited words. There is at most one caption of
/// each of SugarCrepe's kinds (Hsieh et al. 2023), in the order replace_obj, replace_att, replace_rel, swap_obj, swap_att, add_obj,
/// add_att.
std::vector<HardNegative> make_negatives(const CaptionPlan& plan, const Scene& scene, Random& random);

/// Returns phrases that are false for the object. Each is the mention's phrase with one word replaced. There is one for every other shape.
/// If the mention names a color, there is also one for every other color, and likewise for texture and size.
std::vector<std::string> make_phrase_negatives(const Mention& mention);

}  // namespace tessera::shapes
