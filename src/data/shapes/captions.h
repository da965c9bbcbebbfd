#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <src/data/shapes/scene.h>
#include <tessera/base/random.h>

namespace tessera::shapes {

/// `list` only names two things one after the other; the others say how the first stands to the second.
enum class Relation : int { list, left, right, above, below };
enum class Place : int { unsaid, top, bottom, left, right, middle };
enum class Style : int { plain, web };

constexpr int kUnsaid = -1;

/// The words of a mention in the style `web`: numbers in [0, 1), each of which chooses among the words for one thing.
struct WebWords {
  double determiner = 0;
  double shape = 0;
  double color = 0;
  double texture = 0;
  double size = 0;
  double place = 0;
  double opinion = kUnsaid;   // below 0: not said
  double material = kUnsaid;
};

/// One noun phrase. Attributes hold an index into the name tables or kUnsaid; the shape is always said.
struct Mention {
  int object = kUnsaid;  // which object of the scene is meant; kUnsaid for one that is not there
  int shape = 0;
  int color = kUnsaid;
  int texture = kUnsaid;
  int size = kUnsaid;
  int size_wording = 0;
  Place place = Place::unsaid;
  std::optional<WebWords> web = {};  // none: the style is plain
};

struct Join {
  Relation relation = Relation::list;
  int wording = 0;
  double web_words = 0;         // in the style `web`, as in WebWords
  double web_action = kUnsaid;  // "sitting" left of; below 0: not said
};

/// What a caption in the style `web` says besides its objects.
struct WebFrame {
  std::string before;               // with the space behind it
  std::vector<std::string> behind;  // each with the space before it
};

/// A caption before it becomes text: what it says and in which words.
struct CaptionPlan {
  int opening = 0;
  std::vector<Mention> mentions;
  std::vector<Join> joins;  // between neighboring mentions; one that is not a list is followed by a list
  bool tone = false;        // says how dark the background is
  std::optional<WebFrame> web = {};  // none: the style is plain
};

struct CaptionText {
  std::string text;
  std::vector<std::array<std::int64_t, 2>> spans;  // of each mention: bytes [begin, end), article included
};

Relation opposite(Relation relation);
Place opposite(Place place);

/// Draws a true caption in random words. At most `most` objects are named, all of them when it is large enough; with 0 the caption
/// is about the background.
CaptionPlan plan_caption(const Scene& scene, std::size_t most, Style style, Random& random);

/// Adds objects of the scene to the caption, each at a random place where it separates no two that are related.
void add_mentions(CaptionPlan& plan, const Scene& scene, const std::vector<std::size_t>& objects, Style style, Random& random);

/// True captions of parts of the picture, in random words and order, none twice: two of each object, and one of each pair
/// that stands in a clear relation.
std::vector<std::string> write_parts(const Scene& scene, Random& random);

/// "a small red circle".
std::string noun_phrase(const Mention& mention);

CaptionText write(const CaptionPlan& plan, Tone tone);

/// False only when no reading makes the plan true: mentions stand for different objects that have all said attributes,
/// and relations and places hold at least by a hair.
bool could_be_true(const CaptionPlan& plan, const Scene& scene);

/// "a red circle, a blue star and a green heart": color and shape of the objects that the caption names, in its words and in the
/// order of the scene's objects.
std::string write_summary(const CaptionPlan& plan, const Scene& scene);

/// "large striped red circle, small blue star".
std::string write_tags(const Scene& scene);

}  // namespace tessera::shapes
