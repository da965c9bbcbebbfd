#pragma once

#include <cstdint>

#include <src/data/shapes/captions.h>
#include <src/data/shapes/scene.h>
#include <tessera/data/shapes/shapes.h>

namespace tessera::shapes {

/// How a caption fits its image. `whole` captions are true and follow the other settings. `less` captions leave out objects, `more`
/// captions also name objects that are not there, and `other` captions belong to another image.
enum class Fit { whole, less, more, other };

/// One caption of an image before it becomes text.
struct Telling {
  Fit fit = Fit::whole;
  CaptionPlan plan;
  Scene scene;  // the plan's scene: the image's, for `more` with the absent objects at the end; for `other` another image's
};

/// Returns caption number `caption` of the image. A caption with Fit::whole is the same for all shares of bad captions.
Telling tell(const SceneKey& key, const Scene& scene, const ShapesSettings& settings, std::int64_t caption);

}  // namespace tessera::shapes
