#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <src/data/shapes/scene.h>
#include <tessera/base/random.h>

namespace tessera::shapes {

/// How two neighboring things in a caption are related: `list` only names both, and the other values say where the first is relative to the
/// second.
enum class Relation : int { list, left, right, above, below };
enum class Place : int { unsaid, top, bottom, left, right, middle };
enum class Style : int { plain, web };

constexpr int kUnsaid = -1;

/// The choices of words for a mention in the style `web`. Each number is in [0, 1) and selects one of the words that could be used.
struct WebWords {
  double determiner = 0;
  double shape = 0;
  double color = 0;
  double texture = 0;
  double size = 0;
  double place = 0;
  double opinion = kUnsaid;   // negative if the mention has no word of this kind
  double material = kUnsaid;
};

/// One noun phrase. Each attribute is kUnsaid or an index into its name table; the shape is always named.
struct Mention {
  int object = kUnsaid;  // index into Scene::objects; kUnsaid if the scene does not have the mentioned object
  int shape = 0;
  int color = kUnsaid;
  int texture = kUnsaid;
  int size = kUnsaid;
  int size_wording = 0;
  Place place = Place::unsaid;
  std::optional<WebWords> web = {};  // empty in the style `plain`
};

struct Join {
  Relation relation = Relation::list;
  int wording = 0;
  double web_words = 0;         // in [0, 1): selects the words that join two mentions in the style `web`
  double web_action = kUnsaid;  // selects a word such as "sitting" before "left of"; negative if there is none
};

/// The texts before and after the mentions of objects in a caption of the style `web`.
struct WebFrame {
  std::string before;               // text before the mentions, with a space at its end
  std::vector<std::string> behind;  // texts after the mentions; each text begins with its separator
};

/// A caption before it becomes text: its content and its choices of words.
struct CaptionPlan {
  int opening = 0;
  std::vector<Mention> mentions;
  std::vector<Join> joins;  // joins[i] joins the mentions i and i + 1; at least one of two consecutive joins has the relation `list`
  bool tone = false;        // whether the caption mentions how dark the background is
  std::optional<WebFrame> web = {};  // empty in the style `plain`
};

struct CaptionText {
  std::string text;
  std::vector<std::array<std::int64_t, 2>> spans;  // bytes [begin, end) of each mention, including its article
};

Relation opposite(Relation relation);
Place opposite(Place place);

/// Draws a true caption in random words. The caption names at most `most` objects; if `most` is 0, it describes the background.
CaptionPlan plan_caption(const Scene& scene, std::size_t most, Style style, Random& random);

/// Adds objects of the scene to the caption, each at a random position that does not separate two related mentions.
void add_mentions(CaptionPlan& plan, const Scene& scene, const std::vector<std::size_t>& objects, Style style, Random& random);

/// Returns true captions of parts of the image, in random words and random order, without duplicates: two for each object, and one for each
/// pair of objects with a clear relation.
std::vector<std::string> write_parts(const Scene& scene, Random& random);

/// Puts "a" or "an" before the words.
std::string with_article(const std::string& words);

/// Returns the number of words, which single spaces separate.
std::size_t word_count(const std::string& text);

/// Returns a phrase such as "a small red circle".
std::string noun_phrase(const Mention& mention);

CaptionText write(const CaptionPlan& plan, Tone tone);

/// Returns whether the plan is true in at least one reading. A reading assigns a different object to each mention. The plan is true in a
/// reading if all named attributes match, and if all relations and places hold at least approximately.
bool could_be_true(const CaptionPlan& plan, const Scene& scene);

/// Returns a text such as "a red circle, a blue star and a green heart": color and shape of the objects that the caption names, in the
/// caption's words and in the order of the scene's objects.
std::string write_summary(const CaptionPlan& plan, const Scene& scene);

/// Returns a text such as "large striped red circle, small blue star".
std::string write_tags(const Scene& scene);

// The parts of captions of the style `web`.

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
