#pragma once

#include <cstdint>

#include <src/data/shapes/captions.h>
#include <src/data/shapes/scene.h>
#include <tessera/data/shapes/shapes.h>

namespace tessera::shapes {

/// How a caption fits its image: it is true and made as the other settings say, leaves out objects, names objects that are not there
/// as well, or is another image's.
enum class Fit { whole, less, more, other };

/// One caption of an image before it becomes text.
struct Telling {
  Fit fit = Fit::whole;
  CaptionPlan plan;
  Scene scene;  // that the plan is about: the image's; with `more` absent objects follow its own, with `other` it is another image's
};

/// Caption number `caption` of the image. Captions that stay whole are the same whatever the shares of the others.
Telling tell(const SceneKey& key, const Scene& scene, const ShapesSettings& settings, std::int64_t caption);

}  // namespace tessera::shapes
