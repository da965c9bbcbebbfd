#pragma once

#include <string>

#include <src/data/shapes/captions.h>
#include <src/data/shapes/scene.h>
#include <tessera/base/random.h>

namespace tessera::shapes {

/// Words of a mention that is added to a caption of the style `web`.
WebWords draw_web_words(Random& random);

/// Chooses what a mention of the object says, in a phrase of 2 to 7 words (2 to 4 where a caption names four objects or more),
/// and in which words.
void choose_web_words(Mention& mention, const Object& object, std::size_t mentions, Random& random);

/// The same for a whole caption, with what stands before and behind its objects: who did something with them, what kind of image it
/// is, the place and the time, which follow from the background, and words without any meaning here. Leaves such things out until the
/// caption has at most 40 words.
void choose_web_words(CaptionPlan& plan, const Scene& scene, Random& random);

/// "the tiny banded crimson disc".
std::string web_phrase(const Mention& mention);

CaptionText write_web(const CaptionPlan& plan);

}  // namespace tessera::shapes
