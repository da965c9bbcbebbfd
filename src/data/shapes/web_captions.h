#pragma once

#include <string>

#include <src/data/shapes/captions.h>
#include <src/data/shapes/scene.h>
#include <tessera/base/random.h>

namespace tessera::shapes {

/// Draws the words for one mention in a caption of the style `web`, except its words for opinion and material.
WebWords draw_web_words(Random& random);

/// Chooses the attributes of `object` that the mention's phrase contains, and the words of the phrase. The phrase has 2 to 7 words (2 to 4
/// if the caption names four objects or more).
void choose_web_words(Mention& mention, const Object& object, std::size_t mentions, Random& random);

/// Chooses the words of all mentions of a caption, and adds texts before and after the mentions: who did something with the objects, the
/// kind of image, a place and a time that match the background, and unrelated words. If the caption has more than 40 words, leaves out some
/// of these texts, and then words of the mentions.
void choose_web_words(CaptionPlan& plan, const Scene& scene, Random& random);

/// Returns a phrase such as "the tiny banded crimson disc".
std::string web_phrase(const Mention& mention);

/// Returns the words for the place of a mention, with a space in front; empty if there are none.
std::string web_place(const Mention& mention);
/// Returns the text between the mentions i and i + 1.
std::string web_joint(const CaptionPlan& plan, std::size_t i);

}  // namespace tessera::shapes
