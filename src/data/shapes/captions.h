#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <src/data/shapes/scene.h>
#include <tessera/base/random.h>

namespace tessera::shapes {

/// `list` only names two things one after the other; the others say how the first stands to the second.
enum class Relation : int { list, left, right, above, below };
enum class Place : int { unsaid, top, bottom, left, right, middle };

constexpr int kUnsaid = -1;

/// One noun phrase. Attributes hold an index into the name tables or kUnsaid; the shape is always said.
struct Mention {
  int object = kUnsaid;  // which object of the scene is meant; kUnsaid for one that is not there
  int shape = 0;
  int color = kUnsaid;
  int texture = kUnsaid;
  int size = kUnsaid;
  int size_wording = 0;
  Place place = Place::unsaid;
};

struct Join {
  Relation relation = Relation::list;
  int wording = 0;
};

/// A caption before it becomes text: what it says and in which words.
struct CaptionPlan {
  int opening = 0;
  std::vector<Mention> mentions;
  std::vector<Join> joins;  // between neighboring mentions; one that is not a list is followed by a list
  bool tone = false;        // says how dark the background is
};

struct CaptionText {
  std::string text;
  std::vector<std::array<std::int64_t, 2>> spans;  // of each mention: bytes [begin, end), article included
};

Relation opposite(Relation relation);
Place opposite(Place place);

/// Draws a true caption in random words. At most `most` objects are named, all of them when it is large enough.
CaptionPlan plan_caption(const Scene& scene, std::size_t most, Random& random);

/// True captions of parts of the picture, in random words and order, none twice: two of each object, and one of each pair
/// that stands in a clear relation.
std::vector<std::string> write_parts(const Scene& scene, Random& random);

/// "a small red circle".
std::string noun_phrase(const Mention& mention);

CaptionText write(const CaptionPlan& plan, Tone tone);

/// False only when no reading makes the plan true: mentions stand for different objects that have all said attributes,
/// and relations and places hold at least by a hair.
bool could_be_true(const CaptionPlan& plan, const Scene& scene);

/// "a red circle, a blue star and a green heart".
std::string write_summary(const Scene& scene);

/// "large striped red circle, small blue star".
std::string write_tags(const Scene& scene);

}  // namespace tessera::shapes
