#pragma once

#include <cstdint>

#include "src/data/shapes/shapes.h"
#include <src/data/shapes/captions.h>
#include <src/data/shapes/scene.h>

namespace tessera::shapes {

/// How a caption fits its image. `whole` captions are true: they are the same as without the setting bad_captions. `less` captions leave
/// out objects, `more` captions also name objects that are not there, and `other` captions belong to another image.
enum class Fit { whole, less, more, other };

/// One caption of an image before it becomes text.
struct Telling {
  Fit fit = Fit::whole;
  CaptionPlan plan;
  // the scene that `plan` describes: for `whole` and `less`, the image's scene; for `more`, the image's scene followed by objects that are
  // not in the image; for `other`, the scene of another image
  Scene scene;
};

/// Returns caption number `caption` of the image. The setting bad_captions spoils some captions. All other captions (Fit::whole) are the
/// same as without this setting.
Telling tell(const SceneKey& key, const Scene& scene, const ShapesSettings& settings, std::int64_t caption);

}  // namespace tessera::shapes
