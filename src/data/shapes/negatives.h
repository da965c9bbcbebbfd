#pragma once

#include <string>
#include <vector>

#include <src/data/shapes/captions.h>
#include <tessera/base/random.h>
#include <tessera/data/sample.h>

namespace tessera::shapes {

/// Captions like `plan` that are false of the scene, at most one of each of SugarCrepe's kinds (Hsieh et al. 2023), in
/// the order replace_obj, replace_att, replace_rel, swap_obj, swap_att, add_obj, add_att. Only the edited words differ.
std::vector<HardNegative> make_negatives(const CaptionPlan& plan, const Scene& scene, Random& random);

/// The phrase of a mention with one word wrong, false of the object: each other color, texture and size where it says one, and
/// each other shape.
std::vector<std::string> make_phrase_negatives(const Mention& mention);

}  // namespace tessera::shapes
