#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/data/shapes/shapes.h"
#include <src/data/shapes/captions.h>
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::shapes {
namespace {

constexpr std::size_t kMostWords = 26;

const std::array<const char*, 9> kOpenings = {
    "", "", "", "a picture of ", "an image of ", "a scene with ", "there is ", "we see ", "a picture showing "};
const std::array<std::array<const char*, 2>, 3> kSizeWords = {
    {{"small", "little"}, {"medium", "medium"}, {"large", "big"}}};
const std::array<std::array<const char*, 2>, 5> kRelationWords = {
    {{"", ""}, {"left of", "to the left of"}, {"right of", "to the right of"}, {"above", "above"}, {"below", "under"}}};
const std::array<const char*, 6> kPlaceWords = {
    "", " at the top", " at the bottom", " on the left", " on the right", " in the middle"};
const std::array<const char*, 3> kBackgrounds = {"a light background", "a gray background", "a dark background"};

// If the centers of two objects are much further apart along one axis than along the other, returns where object `a` is relative to object
// `b`. Otherwise returns Relation::list, which means that a caption lists the objects without a spatial relation.
Relation clear_relation(const Object& a, const Object& b) {
  const double dx = b.x - a.x, dy = b.y - a.y;
  if (std::abs(dx) > 1.3 * std::abs(dy)) return dx > 0 ? Relation::left : Relation::right;
  if (std::abs(dy) > 1.3 * std::abs(dx)) return dy > 0 ? Relation::above : Relation::below;
  return Relation::list;
}

// A hard negative must be clearly wrong. Therefore, a relation or place counts as true even if it only nearly holds.
constexpr double kNearly = 0.08;
constexpr double kPlaceSlack = 0.22;

bool could_hold(Relation relation, const Object& a, const Object& b) {
  if (relation == Relation::left) return a.x < b.x + kNearly;
  if (relation == Relation::right) return a.x > b.x - kNearly;
  if (relation == Relation::above) return a.y < b.y + kNearly;
  if (relation == Relation::below) return a.y > b.y - kNearly;
  return true;
}

// Returns whether the object is at the place. A larger `slack` also accepts objects near the place; true captions use a slack of 0.
bool stands_at(Place place, const Object& o, double slack) {
  if (place == Place::top) return o.y < 0.37 + slack;
  if (place == Place::bottom) return o.y > 0.63 - slack;
  if (place == Place::left) return o.x < 0.37 + slack;
  if (place == Place::right) return o.x > 0.63 - slack;
  if (place == Place::middle) return std::abs(o.x - 0.5) < 0.1 + slack && std::abs(o.y - 0.5) < 0.1 + slack;
  return true;
}

Place choose_place(const Object& object, Random& random) {
  std::vector<Place> true_ones;
  for (Place place : {Place::top, Place::bottom, Place::left, Place::right, Place::middle})
    if (stands_at(place, object, 0)) true_ones.push_back(place);
  return true_ones.empty() ? Place::unsaid : random.pick(true_ones);
}

Mention mention(const Object& object, int number, std::size_t count, Random& random) {
  const double crowding = count >= 4 ? 0.6 : 1.0;
  Mention m;
  m.object = number;
  m.shape = object.shape;
  if (random.chance(0.93)) m.color = object.color;
  if (random.chance((object.texture == 0 ? 0.15 : 0.7) * crowding)) m.texture = object.texture;
  if (random.chance((object.size == 1 ? 0.25 : 0.55) * crowding)) m.size = object.size;
  m.size_wording = random.chance(0.3) ? 1 : 0;
  return m;
}

// Drops details until the caption is short enough. The least informative details are dropped first.
void shorten(CaptionPlan& plan, Tone tone) {
  const auto too_long = [&] { return word_count(write(plan, tone).text) > kMostWords; };
  if (too_long()) plan.tone = false;
  if (too_long()) plan.opening = 0;
  for (Join& join : plan.joins)
    if (too_long()) join.wording = 0;
  for (int Mention::*attribute : {&Mention::size, &Mention::texture})
    for (auto m = plan.mentions.rbegin(); m != plan.mentions.rend(); ++m)
      if (too_long()) (*m).*attribute = kUnsaid;
}

bool fits(const Mention& m, const Object& o) {
  return m.shape == o.shape && (m.color == kUnsaid || m.color == o.color) &&
         (m.texture == kUnsaid || m.texture == o.texture) && (m.size == kUnsaid || m.size == o.size) &&
         stands_at(m.place, o, kPlaceSlack);
}

// Returns the text between the mentions i and i + 1. If the caption has relations, related mentions form a group, and commas separate the
// groups: "a left of b, and c".
std::string joint(const CaptionPlan& plan, std::size_t i) {
  const auto is_list = [](const Join& join) { return join.relation == Relation::list; };
  const Join& join = plan.joins[i];
  if (!is_list(join)) return concat(" ", kRelationWords[at(join.relation)][at(join.wording)], " ");
  if (std::any_of(plan.joins.begin() + static_cast<std::ptrdiff_t>(i) + 1, plan.joins.end(), is_list)) return ", ";
  return std::ranges::all_of(plan.joins, is_list) ? " and " : ", and ";
}

// Tries to assign a different object to each mention, starting with mention `next`.
bool assign(const CaptionPlan& plan, const Scene& scene, std::size_t next, std::vector<std::size_t>& chosen) {
  if (next == plan.mentions.size()) return true;
  for (std::size_t i = 0; i < scene.objects.size(); ++i) {
    if (contains(chosen, i) || !fits(plan.mentions[next], scene.objects[i])) continue;
    if (next > 0 && !could_hold(plan.joins[next - 1].relation, scene.objects[chosen.back()], scene.objects[i]))
      continue;
    chosen.push_back(i);
    if (assign(plan, scene, next + 1, chosen)) return true;
    chosen.pop_back();
  }
  return false;
}

}  // namespace

std::string with_article(const std::string& words) {
  return (std::string("aeiou").find(words[0]) != std::string::npos ? "an " : "a ") + words;
}

std::size_t word_count(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), ' ')) + 1;
}

Relation opposite(Relation relation) {
  static constexpr std::array<Relation, 5> opposites = {Relation::list, Relation::right, Relation::left,
                                                        Relation::below, Relation::above};
  return opposites[at(relation)];
}

Place opposite(Place place) {
  static constexpr std::array<Place, 6> opposites = {Place::unsaid, Place::bottom, Place::top,
                                                     Place::right,  Place::left,   Place::unsaid};
  return opposites[at(place)];
}

CaptionPlan plan_caption(const Scene& scene, std::size_t most, Style style, Random& random) {
  std::vector<int> order(scene.objects.size());
  std::iota(order.begin(), order.end(), 0);
  random.shuffle(order);
  if (order.size() > most) order.resize(most);

  CaptionPlan plan;
  plan.opening = static_cast<int>(random.below(static_cast<std::int64_t>(kOpenings.size())));
  plan.tone = random.chance(order.size() <= 2 ? 0.25 : 0.1);
  for (int number : order) plan.mentions.push_back(mention(scene.objects[at(number)], number, order.size(), random));
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    Join join;
    const bool free = i == 0 || plan.joins[i - 1].relation == Relation::list;
    if (random.chance(0.8) && free)
      join.relation = clear_relation(scene.objects[at(order[i])], scene.objects[at(order[i + 1])]);
    join.wording = random.chance(0.35) ? 1 : 0;
    plan.joins.push_back(join);
  }
  // An object that the caption relates to another object ("left of") does not also get a place in the image ("on the left"), because a
  // reader could confuse the place with the relation.
  for (std::size_t i = 0; i < order.size(); ++i) {
    const bool related = (i > 0 && plan.joins[i - 1].relation != Relation::list) ||
                         (i < plan.joins.size() && plan.joins[i].relation != Relation::list);
    if (!related && random.chance(order.size() == 1 ? 0.5 : 0.35))
      plan.mentions[i].place = choose_place(scene.objects[at(order[i])], random);
  }
  if (style == Style::web)
    choose_web_words(plan, scene, random);
  else
    shorten(plan, scene.tone);
  return plan;
}

void add_mentions(CaptionPlan& plan, const Scene& scene, const std::vector<std::size_t>& objects, Style style,
                  Random& random) {
  for (const std::size_t number : objects) {
    std::vector<std::size_t> places = {0};
    for (std::size_t i = 1; i <= plan.mentions.size(); ++i)
      if (i == plan.mentions.size() || plan.joins[i - 1].relation == Relation::list) places.push_back(i);
    const std::size_t count = plan.mentions.size() + 1;
    const auto chosen = static_cast<std::ptrdiff_t>(random.pick(places));
    Mention added = mention(scene.objects[number], static_cast<int>(number), count, random);
    if (style == Style::web) choose_web_words(added, scene.objects[number], count, random);
    plan.mentions.insert(plan.mentions.begin() + chosen, std::move(added));
    if (count > 1) plan.joins.insert(plan.joins.begin() + std::max<std::ptrdiff_t>(chosen - 1, 0), Join{});
  }
}

std::vector<std::string> write_parts(const Scene& scene, Random& random) {
  std::vector<std::string> out;
  const auto add = [&](const CaptionPlan& plan) {
    std::string text = write(plan, scene.tone).text;
    if (!contains(out, text)) out.push_back(std::move(text));
  };
  const std::size_t count = scene.objects.size();
  for (std::size_t i = 0; i < count; ++i) {
    const Object& object = scene.objects[i];
    CaptionPlan first, second;
    first.mentions = {mention(object, static_cast<int>(i), 1, random)};
    second.mentions = {mention(object, static_cast<int>(i), 1, random)};
    second.mentions[0].color = object.color;
    second.mentions[0].place = choose_place(object, random);
    add(first);
    add(second);
    for (std::size_t j = i + 1; j < count; ++j) {
      const bool swapped = random.chance(0.5);
      const std::size_t from = swapped ? j : i, to = swapped ? i : j;
      CaptionPlan pair;
      pair.mentions = {mention(scene.objects[from], static_cast<int>(from), 2, random),
                       mention(scene.objects[to], static_cast<int>(to), 2, random)};
      pair.joins = {{clear_relation(scene.objects[from], scene.objects[to]), random.chance(0.35) ? 1 : 0}};
      if (pair.joins[0].relation != Relation::list) add(pair);
    }
  }
  random.shuffle(out);
  return out;
}

std::string noun_phrase(const Mention& m) {
  if (m.web) return web_phrase(m);
  std::string words;
  if (m.size != kUnsaid) words += std::string(kSizeWords[at(m.size)][at(m.size_wording)]) + " ";
  if (m.texture != kUnsaid) words += shapes_texture_names()[at(m.texture)] + " ";
  if (m.color != kUnsaid) words += shapes_color_names()[at(m.color)] + " ";
  return with_article(words + shapes_shape_names()[at(m.shape)]);
}

CaptionText write(const CaptionPlan& plan, Tone tone) {
  CaptionText out;
  const bool names_any = !plan.mentions.empty();
  out.text = plan.web ? plan.web->before : concat(kOpenings[at(plan.opening)], names_any ? "" : kBackgrounds[at(tone)]);
  for (std::size_t i = 0; i < plan.mentions.size(); ++i) {
    const Mention& m = plan.mentions[i];
    const std::string phrase = noun_phrase(m);
    const auto begin = static_cast<std::int64_t>(out.text.size());
    out.text += phrase;
    out.spans.push_back({begin, begin + static_cast<std::int64_t>(phrase.size())});
    out.text += plan.web ? web_place(m) : kPlaceWords[at(m.place)];
    if (i < plan.joins.size()) out.text += plan.web ? web_joint(plan, i) : joint(plan, i);
  }
  if (plan.web)
    for (const std::string& part : plan.web->behind) out.text += part;
  else if (plan.tone && names_any)
    out.text += concat(" on ", kBackgrounds[at(tone)]);
  return out;
}

bool could_be_true(const CaptionPlan& plan, const Scene& scene) {
  std::vector<std::size_t> chosen;
  return assign(plan, scene, 0, chosen);
}

std::string write_summary(const CaptionPlan& plan, const Scene& scene) {
  std::vector<Mention> named = plan.mentions;
  std::sort(named.begin(), named.end(), [](const Mention& a, const Mention& b) { return a.object < b.object; });
  std::vector<std::string> items;
  for (const Mention& m : named) {
    Mention shown;
    shown.shape = m.shape;
    shown.color = scene.objects[at(m.object)].color;
    if (m.web) shown.web = WebWords{.shape = m.web->shape, .color = m.web->color};
    items.push_back(noun_phrase(shown));
  }
  return items.empty() ? kBackgrounds[at(scene.tone)] : join_names(items);
}

std::string write_tags(const Scene& scene) {
  std::string text;
  for (const Object& o : scene.objects) {
    if (!text.empty()) text += ", ";
    text += shapes_size_names()[at(o.size)] + " ";
    if (o.texture != 0) text += shapes_texture_names()[at(o.texture)] + " ";
    text += shapes_color_names()[at(o.color)] + " " + shapes_shape_names()[at(o.shape)];
  }
  return text;
}

}  // namespace tessera::shapes
