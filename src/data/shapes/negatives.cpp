#include <algorithm>
#include <array>
#include <utility>

#include "src/data/shapes/shapes.h"
#include <src/data/shapes/negatives.h>

namespace tessera::shapes {
namespace {

using Attribute = int Mention::*;

/// What belongs to an attribute of mentions.
struct AttributeKind {
  Attribute attribute;
  const std::vector<std::string>& (*names)();
  int Object::*truth;
  double WebWords::*word;  // the choice of its word in the style `web`
};

const AttributeKind& kind_of(Attribute attribute) {
  static const std::array<AttributeKind, 4> kinds = {{
      {&Mention::shape, shapes_shape_names, &Object::shape, &WebWords::shape},
      {&Mention::color, shapes_color_names, &Object::color, &WebWords::color},
      {&Mention::texture, shapes_texture_names, &Object::texture, &WebWords::texture},
      {&Mention::size, shapes_size_names, &Object::size, &WebWords::size}}};
  return *std::ranges::find(kinds, attribute, &AttributeKind::attribute);
}

int count_of(Attribute attribute) {
  return static_cast<int>(kind_of(attribute).names().size());
}

int other_value(Attribute attribute, int value, Random& random) {
  const int shift = 1 + static_cast<int>(random.below(count_of(attribute) - 1));
  return (value + shift) % count_of(attribute);
}

Attribute random_adjective(Random& random) {
  static const std::vector<Attribute> adjectives = {&Mention::color, &Mention::texture, &Mention::size};
  return random.pick(adjectives);
}

Mention& random_mention(CaptionPlan& plan, Random& random) {
  return plan.mentions[at(random.below(std::ssize(plan.mentions)))];
}

// Each of these functions makes one kind of edit, which changes one aspect of the plan. A function returns false if the change that it
// chose at random is impossible.

bool replace_object(CaptionPlan& plan, const Scene&, Random& random) {
  Mention& m = random_mention(plan, random);
  m.shape = other_value(&Mention::shape, m.shape, random);
  return true;
}

bool replace_attribute(CaptionPlan& plan, const Scene&, Random& random) {
  Mention& m = random_mention(plan, random);
  const Attribute attribute = random_adjective(random);
  if (m.*attribute == kUnsaid) return false;
  m.*attribute = other_value(attribute, m.*attribute, random);
  return true;
}

bool replace_relation(CaptionPlan& plan, const Scene&, Random& random) {
  const std::size_t joins = plan.joins.size();
  const std::size_t i = at(random.below(static_cast<std::int64_t>(joins + plan.mentions.size())));
  if (i < joins) {
    Relation& relation = plan.joins[i].relation;
    relation = opposite(relation);
    return relation != Relation::list;
  }
  Place& place = plan.mentions[i - joins].place;
  place = opposite(place);
  return place != Place::unsaid;
}

// Picks two different mentions. Returns null pointers if there are fewer than two.
std::pair<Mention*, Mention*> two_mentions(CaptionPlan& plan, Random& random) {
  const auto count = static_cast<std::int64_t>(plan.mentions.size());
  if (count < 2) return {};
  const std::int64_t first = random.below(count);
  const std::int64_t second = (first + 1 + random.below(count - 1)) % count;
  return {&plan.mentions[at(first)], &plan.mentions[at(second)]};
}

// Swaps an attribute between two mentions. In the style `web`, also swaps the words that stand for the attribute.
void swap_attribute(Attribute attribute, Mention& a, Mention& b) {
  std::swap(a.*attribute, b.*attribute);
  double WebWords::*word = kind_of(attribute).word;
  if (a.web && b.web) std::swap((*a.web).*word, (*b.web).*word);
}

// In half of the cases, swaps only the nouns; otherwise, swaps the whole phrases. Places such as "at the top" are not swapped.
bool swap_objects(CaptionPlan& plan, const Scene&, Random& random) {
  const auto [a, b] = two_mentions(plan, random);
  if (a == nullptr || a->shape == b->shape) return false;
  if (random.chance(0.5)) {
    swap_attribute(&Mention::shape, *a, *b);
  } else {
    std::swap(*a, *b);
    std::swap(a->place, b->place);
    if (a->web && b->web) std::swap(a->web->place, b->web->place);
  }
  return true;
}

bool swap_attributes(CaptionPlan& plan, const Scene&, Random& random) {
  const auto [a, b] = two_mentions(plan, random);
  if (a == nullptr) return false;
  const Attribute attribute = random_adjective(random);
  if (a->*attribute == kUnsaid || b->*attribute == kUnsaid || a->*attribute == b->*attribute) return false;
  swap_attribute(attribute, *a, *b);
  return true;
}

bool add_object(CaptionPlan& plan, const Scene&, Random& random) {
  Mention added;
  added.shape = static_cast<int>(random.below(count_of(&Mention::shape)));
  added.color = static_cast<int>(random.below(count_of(&Mention::color)));
  for (const Mention& m : plan.mentions)
    if (m.shape == added.shape) return false;
  if (plan.web) added.web = draw_web_words(random);
  plan.mentions.push_back(added);
  plan.joins.push_back({});
  return true;
}

bool add_attribute(CaptionPlan& plan, const Scene& scene, Random& random) {
  Mention& m = random_mention(plan, random);
  const Object& object = scene.objects[at(m.object)];
  const Attribute attribute = random_adjective(random);
  if (m.*attribute != kUnsaid) return false;
  m.*attribute = other_value(attribute, object.*kind_of(attribute).truth, random);
  return true;
}

}  // namespace

std::vector<HardNegative> make_negatives(const CaptionPlan& plan, const Scene& scene, Random& random) {
  struct Kind {
    const char* name;
    bool (*edit)(CaptionPlan&, const Scene&, Random&);
  };
  static constexpr std::array<Kind, 7> kKinds = {{{"replace_obj", replace_object},
                                                  {"replace_att", replace_attribute},
                                                  {"replace_rel", replace_relation},
                                                  {"swap_obj", swap_objects},
                                                  {"swap_att", swap_attributes},
                                                  {"add_obj", add_object},
                                                  {"add_att", add_attribute}}};
  constexpr int kAttempts = 16;
  std::vector<HardNegative> out;
  if (plan.mentions.empty()) return out;
  for (const Kind& kind : kKinds) {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      CaptionPlan edited = plan;
      if (!kind.edit(edited, scene, random) || could_be_true(edited, scene)) continue;
      out.push_back({kind.name, write(edited, scene.tone).text});
      break;
    }
  }
  return out;
}

std::vector<std::string> make_phrase_negatives(const Mention& mention) {
  std::vector<std::string> out;
  for (const Attribute attribute : {&Mention::color, &Mention::texture, &Mention::size, &Mention::shape}) {
    if (mention.*attribute == kUnsaid) continue;
    for (int value = 0; value < count_of(attribute); ++value) {
      Mention wrong = mention;
      wrong.*attribute = value;
      if (value != mention.*attribute) out.push_back(noun_phrase(wrong));
    }
  }
  return out;
}

}  // namespace tessera::shapes
