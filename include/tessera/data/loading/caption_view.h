#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tessera/data/loading/caption_sampler.h>

namespace tessera {

/// Settings of the view `captions`, which has K captions per image.
struct CaptionViewSettings : CaptionSamplerSettings {
  std::string choice = "sentences";
  std::int64_t count = 0;
};

template <class Visitor>
void fields(Visitor& v, CaptionViewSettings& s) {
  v("choice", s.choice,
    "sentences: drawn as `slots` specifies; all: the first `count` of the data's captions, unchanged; random: `count` of them at "
    "random without repetition. With `fields`, all and random take the texts of these fields instead of the captions",
    config::one_of({"sentences", "all", "random"}));
  v("count", s.count, "captions per image for the choices all and random; if an image has fewer, the rest are absent",
    config::in_range(0, config::kMostCount));
  fields(v, static_cast<CaptionSamplerSettings&>(s));
}

std::optional<config::Problem> validate(const CaptionViewSettings& settings);

/// Returns K, the number of captions per image.
std::int64_t captions_per_image(const CaptionViewSettings& settings);

}  // namespace tessera
