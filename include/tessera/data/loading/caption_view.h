#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tessera/data/loading/caption_sampler.h>

namespace tessera {

/// What the view `captions`, K captions per image, is made of.
struct CaptionViewSettings : CaptionSamplerSettings {
  std::string choice = "sentences";
  std::int64_t count = 0;
};

template <class Visitor>
void fields(Visitor& v, CaptionViewSettings& s) {
  v("choice", s.choice,
    "sentences: as slots say; or the data's captions as they are (with `fields`: the texts of these): all, the first "
    "`count` of them, or random, `count` of them, none twice",
    config::one_of({"sentences", "all", "random"}));
  v("count", s.count, "captions per image of the choices all and random; an image with fewer lacks the others",
    config::in_range(0, 1000));
  fields(v, static_cast<CaptionSamplerSettings&>(s));
}

std::optional<config::Problem> validate(const CaptionViewSettings& settings);

/// K.
std::int64_t captions_per_image(const CaptionViewSettings& settings);

}  // namespace tessera
