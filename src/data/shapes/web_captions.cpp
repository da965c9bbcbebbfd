#include <algorithm>
#include <array>

#include <src/data/shapes/captions.h>
#include <src/data/shapes/web_words.h>

namespace tessera::shapes {
namespace {

constexpr std::size_t kMostWebWords = 40;

struct Chance {
  double share;
  const char* word;
};

// The determiners and their shares, which add up to 1. "a" becomes "an" where necessary.
constexpr std::array<Chance, 7> kDeterminers = {
    {{0.7, "a"}, {0.12, "the"}, {0.06, "one"}, {0.04, "my"}, {0.04, "this"}, {0.02, "our"}, {0.02, "that"}}};
const std::array<std::vector<const char*>, 5> kRelations = {
    {{""},
     {"left of", "to the left of", "on the left side of", "left from"},
     {"right of", "to the right of", "on the right side of", "right from"},
     {"above", "over", "higher than", "up above"},
     {"below", "under", "beneath", "underneath", "lower than"}}};
const std::array<std::vector<const char*>, 6> kPlaces = {{{""},
                                                          {" at the top", " near the top edge", " in the upper half"},
                                                          {" at the bottom", " near the bottom edge", " in the lower half"},
                                                          {" on the left", " near the left edge", " in the left half"},
                                                          {" on the right", " near the right edge", " in the right half"},
                                                          {" in the middle", " in the center", " at the center"}}};
constexpr std::array<const char*, 4> kLists = {" and ", " with ", " along with ", " as well as "};
constexpr std::array<const char*, 5> kBackdropWords = {" on ", " against ", " near ", " by ", " over "};
constexpr std::array<const char*, 5> kTimeWords = {" at ", " in ", " during ", " before ", " after "};

template <class List>
auto choose(const List& list, double number) {
  return list[at(number * static_cast<double>(list.size()))];
}

std::string word(Topic topic, Random& random) {
  return topic_words(topic).at(random.uniform());
}

std::string someone(Random& random) {
  if (random.chance(0.45)) return word(Topic::name, random);
  const std::string whose = random.chance(0.5) ? "my " : "the ";
  return whose + word(Topic::person, random);
}

std::string some_kind_of_image(Random& random) {
  const double what = random.uniform();
  const std::string genre = word(Topic::genre, random);
  if (what < 0.35) return with_article(word(Topic::opinion, random) + " " + genre);
  if (what < 0.5) return with_article(word(Topic::event, random) + " " + genre);
  return with_article(genre);
}

std::string beginning(std::size_t mentions, Random& random) {
  const double what = random.uniform();
  if (what < 0.35) return some_kind_of_image(random) + " of ";
  if (what < 0.55) {
    const std::string who = someone(random);
    return who + " " + word(Topic::deed, random) + " ";
  }
  if (what < 0.65 && mentions > 0) return count_words(mentions).at(random.uniform()) + ", ";
  return "";
}

std::string backdrop(const Scene& scene, Random& random) {
  const std::string noun = backdrop_words(scene.tone, scene.backdrop).at(random.uniform());
  return random.chance(0.25) ? word(Topic::opinion, random) + " " + noun : noun;
}

// Returns the texts that follow the objects in a caption. Each text begins with its separator.
std::vector<std::string> ending(const Scene& scene, Random& random) {
  std::vector<std::string> out;
  if (random.chance(0.5)) {
    const std::string preposition = choose(kBackdropWords, random.uniform());
    out.push_back(preposition + backdrop(scene, random));
  }
  if (random.chance(0.3)) {
    const std::string preposition = choose(kTimeWords, random.uniform());
    out.push_back(preposition + time_words(scene.tone).at(random.uniform()));
  }
  if (random.chance(0.12)) out.push_back(" in " + word(Topic::city, random));
  if (random.chance(0.12)) {
    const std::string preposition = random.chance(0.5) ? " by " : " for ";
    out.push_back(preposition + someone(random));
  }
  if (random.chance(0.1)) out.push_back(" for " + with_article(word(Topic::event, random)));
  if (random.chance(0.12)) {
    const std::string subject = word(Topic::subject, random);
    out.push_back(", " + subject + " " + word(Topic::shop, random));
  }
  if (random.chance(0.15)) {
    const std::string first = word(Topic::shop, random);
    out.push_back(", " + first + " " + word(Topic::shop, random));
  }
  return out;
}

// Removes the least informative word of the longest phrase. Returns false if no word can be removed.
bool shorten_longest(std::vector<Mention>& mentions) {
  const auto words = [](const Mention& m) { return word_count(web_phrase(m)); };
  const auto longest = std::max_element(mentions.begin(), mentions.end(),
                                        [&](const Mention& a, const Mention& b) { return words(a) < words(b); });
  if (longest == mentions.end() || words(*longest) <= 3) return false;
  for (double WebWords::*extra : {&WebWords::opinion, &WebWords::material}) {
    if ((*longest->web).*extra < 0) continue;
    (*longest->web).*extra = kUnsaid;
    return true;
  }
  int Mention::*attribute = longest->size != kUnsaid ? &Mention::size : &Mention::texture;
  (*longest).*attribute = kUnsaid;
  return true;
}

void shorten(CaptionPlan& plan) {
  const auto too_long = [&] { return word_count(write(plan, Tone::light).text) > kMostWebWords; };
  while (too_long() && !plan.web->behind.empty()) plan.web->behind.pop_back();
  if (too_long()) plan.web->before.clear();
  for (Join& join : plan.joins)
    if (too_long()) join.web_action = kUnsaid;
  while (too_long() && shorten_longest(plan.mentions)) {}
}

}  // namespace

WebWords draw_web_words(Random& random) {
  WebWords words;
  for (double* number : {&words.determiner, &words.shape, &words.color, &words.texture, &words.size, &words.place})
    *number = random.uniform();
  return words;
}

void choose_web_words(Mention& mention, const Object& object, std::size_t mentions, Random& random) {
  WebWords words = draw_web_words(random);
  const double opinion = random.uniform(), material = random.uniform();
  mention.color = mention.texture = mention.size = kUnsaid;
  // The parts that a phrase can have between determiner and noun. They are put into random order, usually with the color first, and the
  // phrase keeps only the first few of them.
  enum Piece { color, texture, size, opinion_part, material_part };
  std::vector<Piece> parts = {texture, size, opinion_part, material_part};
  random.shuffle(parts);
  parts.insert(random.chance(0.85) ? parts.begin() : parts.end(), color);
  parts.resize(static_cast<std::size_t>(random.below(mentions >= 4 ? 3 : 6)));
  for (const Piece part : parts) {
    if (part == color) mention.color = object.color;
    if (part == texture) mention.texture = object.texture;
    if (part == size) mention.size = object.size;
    if (part == opinion_part) words.opinion = opinion;
    if (part == material_part) words.material = material;
  }
  mention.web = words;
}

void choose_web_words(CaptionPlan& plan, const Scene& scene, Random& random) {
  for (Mention& m : plan.mentions)
    choose_web_words(m, scene.objects[at(m.object)], plan.mentions.size(), random);
  for (Join& join : plan.joins) {
    join.web_words = random.uniform();
    const double action = random.uniform();
    if (random.chance(0.4)) join.web_action = action;
  }
  plan.web = WebFrame{beginning(plan.mentions.size(), random), ending(scene, random)};
  if (plan.mentions.empty()) {
    const std::string kind = some_kind_of_image(random);
    *plan.web = {kind + " of " + backdrop(scene, random), {}};
  }
  shorten(plan);
}

std::string web_phrase(const Mention& m) {
  const WebWords& web = *m.web;
  std::string words;
  if (web.opinion >= 0) words += topic_words(Topic::opinion).at(web.opinion) + " ";
  if (m.size != kUnsaid) words += size_words(m.size).at(web.size) + " ";
  if (m.texture != kUnsaid) words += texture_words(m.texture).at(web.texture) + " ";
  if (m.color != kUnsaid) words += color_words(m.color).at(web.color) + " ";
  if (web.material >= 0) words += topic_words(Topic::material).at(web.material) + " ";
  words += shape_words(m.shape).at(web.shape);
  double number = web.determiner;
  for (const Chance& determiner : kDeterminers) {
    if (number < determiner.share && determiner.word != std::string("a")) return std::string(determiner.word) + " " + words;
    if (number < determiner.share) break;
    number -= determiner.share;
  }
  return with_article(words);
}

std::string web_place(const Mention& mention) {
  return choose(kPlaces[at(mention.place)], mention.web->place);
}

std::string web_joint(const CaptionPlan& plan, std::size_t i) {
  const Join& join = plan.joins[i];
  if (join.relation == Relation::list) return i + 1 < plan.joins.size() ? ", " : choose(kLists, join.web_words);
  const std::string action = join.web_action >= 0 ? topic_words(Topic::action).at(join.web_action) + " " : "";
  return " " + action + choose(kRelations[at(join.relation)], join.web_words) + " ";
}

}  // namespace tessera::shapes
