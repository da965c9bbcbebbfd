#include <algorithm>
#include <vector>

#include <c10/util/Exception.h>

#include <src/data/shapes/telling.h>

namespace tessera::shapes {
namespace {

constexpr std::int64_t kFirstUnusedIndex = std::int64_t{1} << 32;  // every data set has fewer samples than this

Fit draw_fit(const BadCaptionShares& shares, Random& random) {
  const double number = random.uniform();
  if (number < shares.less) return Fit::less;
  if (number < shares.less + shares.more) return Fit::more;
  return number < shares.sum() ? Fit::other : Fit::whole;
}

// Returns an object with a shape that no object of the scene has.
Object absent_object(const Scene& scene, Split split, Random& random) {
  Object out;
  const auto is_there = [&](const Object& o) { return o.shape == out.shape; };
  do {
    out.shape = static_cast<int>(random.below(static_cast<std::int64_t>(shapes_shape_names().size())));
    out.color = static_cast<int>(random.below(static_cast<std::int64_t>(shapes_color_names().size())));
  } while (std::any_of(scene.objects.begin(), scene.objects.end(), is_there) ||
           shapes_held_out_pair(out.shape, out.color) != (split == Split::held_out));
  out.texture = static_cast<int>(random.below(static_cast<std::int64_t>(shapes_texture_names().size())));
  out.size = static_cast<int>(random.below(static_cast<std::int64_t>(shapes_size_names().size())));
  return out;
}

// Makes another random scene and a caption of it. The caption is false for `scene`.
void tell_of_another(const SceneKey& key, const Scene& scene, const ShapesSettings& settings, Style style, Random& random,
                     Telling& out) {
  constexpr int kAttempts = 1000;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const SceneKey other{key.seed, key.split, kFirstUnusedIndex + random.next()};
    out.scene = make_scene(other, settings.objects, settings.object_sizes);
    out.plan = plan_caption(out.scene, out.scene.objects.size(), style, random);
    if (!could_be_true(out.plan, scene)) return;
  }
  TORCH_INTERNAL_ASSERT(false, "shapes: every caption is true of sample ", key.index);
}

}  // namespace

Telling tell(const SceneKey& key, const Scene& scene, const ShapesSettings& settings, std::int64_t caption) {
  const Style style = settings.style == "web" ? Style::web : Style::plain;
  const auto number = static_cast<std::uint64_t>(caption);
  Random words = key.random(caption_part + number);
  Random misfit = key.random(misfit_part + number);
  const auto count = static_cast<std::int64_t>(scene.objects.size());
  // `partial` and `few` are drawn for every caption, even if they are not used, so that the later draws are always the same. The first
  // caption is never partial, because the annotations belong to it.
  const bool partial = words.chance(settings.partial_captions) && caption > 0;
  const std::int64_t few = 1 + words.below(count);

  Telling out{draw_fit(settings.bad_captions, misfit), {}, scene};
  if (out.fit == Fit::other) {
    tell_of_another(key, scene, settings, style, misfit, out);
    return out;
  }
  const std::int64_t named = out.fit == Fit::less ? (count == 1 ? 0 : 1 + misfit.below(count - 1)) : partial ? few : count;
  out.plan = plan_caption(scene, static_cast<std::size_t>(named), style, words);
  if (out.fit == Fit::more) {
    std::vector<std::size_t> added;
    const std::int64_t more = 1 + misfit.below(2);
    for (std::int64_t i = 0; i < more; ++i) {
      added.push_back(out.scene.objects.size());
      out.scene.objects.push_back(absent_object(out.scene, key.split, misfit));
    }
    add_mentions(out.plan, out.scene, added, style, misfit);
  }
  return out;
}

}  // namespace tessera::shapes
