#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "src/base/printable.h"
#include "src/data/packing/rule_negatives.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

using Words = std::vector<std::string>;

constexpr std::string_view kLexicon = R"(# Words that rules swap and replace: of captions of photographs.
att color: red | orange | yellow | green | blue, cyan | purple | pink | brown | black | white | gray, grey
att size: small, little, tiny | large, big, huge, giant
att length: long | short
att height: tall | short
att age: young | old, elderly
att new: new, modern | old, ancient
att material: wooden | metal, steel | plastic | glass | stone | leather | paper | brick
att pattern: plain | striped | dotted, spotted | checkered, plaid
att shape: round, circular | square | triangular | rectangular | oval
att light: bright, sunny | dark, dim
att water: wet | dry
att filling: empty | full
att state: open | closed
att order: clean | dirty
att mood: happy, smiling | sad | angry
att count: two | three | four | five | six | seven | eight | nine | ten
obj person: man/men | woman/women | boy | girl | baby | child/children, kid
obj trade: chef | doctor | soldier | player | teacher | farmer | firefighter | policeman/policemen
obj animal: dog, puppy | cat, kitten | horse | cow | sheep/sheep | bird | elephant | giraffe | zebra | bear | duck | rabbit | monkey
obj vehicle: car | bus | truck | train | bicycle, bike | motorcycle, motorbike | boat, ship | airplane, plane
obj food: apple | banana | pizza | sandwich | cake | carrot | salad | soup | bread | donut | burger
obj vessel: cup, mug | bottle | bowl | plate | vase | bucket
obj furniture: chair | table, desk | bed | couch, sofa | bench | shelf/shelves
obj clothing: shirt | jacket, coat | dress | hat, cap | scarf/scarves | tie | shoe | glove
obj device: phone | laptop, computer | television | camera | keyboard | clock
obj plant: tree | flower | bush | grass/grass
obj building: house | church | tower | bridge | barn | castle
obj place: beach | street, road | park | field | forest, woods/woods | mountain | river | kitchen | bathroom | bedroom | office
obj sport: ball | frisbee | kite | skateboard | surfboard | racket
obj shape: circle | square | triangle | star | cross | diamond | ring | heart | hexagon | moon
rel side: left of, to the left of | right of, to the right of
rel place: on the left | on the right | at the top | at the bottom | in the middle, in the center
rel height: above, on top of | below, under, beneath, underneath
rel depth: in front of | behind
rel boundary: inside | outside
rel distance: next to, beside, near | far from
rel possession: with | without
rel posture: sitting | standing | lying | kneeling
rel motion: walking | running | jumping | swimming | flying
rel hand: holding | throwing | dropping
rel meal: eating | cooking
rel travel: riding | pushing | pulling
rel clothing: wearing | washing
)";

enum class WordKind { attribute, object, relation };

/// One form (singular or plural) of a lexicon entry, as the words that appear in texts.
struct WordForm {
  Words words;
  WordKind kind = WordKind::attribute;
  std::size_t group = 0;  // index of the entry's class in the lexicon
  // Index of the side with this word. In the lexicon, | separates the sides of a class. Only words on different sides exclude each other.
  std::size_t side = 0;
  bool plural = false;
  std::size_t pair = 0;  // for a noun: index of its other form (plural or singular)
};

bool excludes(const WordForm& a, const WordForm& b) {
  return a.group == b.group && a.side != b.side;
}

Words parts_of(std::string_view text) {
  Words out;
  for (const std::string& word : split(text, ' '))
    if (!word.empty()) out.push_back(word);
  return out;
}

std::string make_plural(const std::string& noun) {
  const auto ends = [&](const char* ending) { return noun.ends_with(ending); };
  if (ends("s") || ends("x") || ends("ch") || ends("sh")) return noun + "es";
  const bool after_vowel =
      noun.size() > 1 && std::string_view("aeiou").find(noun[noun.size() - 2]) != std::string_view::npos;
  if (ends("y") && !after_vowel) return noun.substr(0, noun.size() - 1) + "ies";
  return noun + "s";
}

/// A word of a text, and the characters between this word and the next.
struct TextWord {
  std::string text;
  std::string behind;
  std::string plain;  // lower-case

  bool capital() const { return std::isupper(static_cast<unsigned char>(text[0])) != 0; }
};

struct CutText {
  std::string before;
  std::vector<TextWord> words;
};

CutText cut(const std::string& text) {
  const auto in_word = [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x80 || std::isalnum(byte) != 0 || c == '\'';
  };
  CutText out;
  for (const char c : text) {
    if (!in_word(c)) {
      (out.words.empty() ? out.before : out.words.back().behind) += c;
      continue;
    }
    if (out.words.empty() || !out.words.back().behind.empty()) out.words.emplace_back();
    out.words.back().text += c;
    out.words.back().plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

/// An occurrence of a word form in a text.
struct Found {
  std::size_t first = 0;
  const WordForm* form = nullptr;

  std::size_t end() const { return first + form->words.size(); }
};

/// Replaces the word form found at `place` with another word form.
struct Edit {
  Found place;
  const WordForm* form = nullptr;
};

using Edits = std::vector<Edit>;  // sorted by position in the text

// If the word at `place` is the article "a" or "an", replaces it with the form that suits the next word.
void fix_article(CutText& text, std::size_t place) {
  TextWord& article = text.words[place];
  if (article.plain != "a" && article.plain != "an") return;
  const char next = text.words[place + 1].text[0];
  const bool vowel = std::string_view("aeiouAEIOU").find(next) != std::string_view::npos;
  article.text = concat(article.capital() ? "A" : "a", vowel ? "n" : "");
}

std::string edited(CutText text, const Edits& edits) {
  for (auto edit = edits.rbegin(); edit != edits.rend(); ++edit) {  // backwards, so that earlier positions stay valid
    const auto first = text.words.begin() + static_cast<std::ptrdiff_t>(edit->place.first);
    TextWord joined;
    for (const std::string& word : edit->form->words) joined.text += joined.text.empty() ? word : " " + word;
    if (first->capital()) joined.text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(joined.text[0])));
    joined.behind = text.words[edit->place.end() - 1].behind;
    *first = joined;
    text.words.erase(first + 1, first + static_cast<std::ptrdiff_t>(edit->place.form->words.size()));
    if (edit->place.first > 0) fix_article(text, edit->place.first - 1);
  }
  std::string out = text.before;
  for (const TextWord& word : text.words) out += word.text + word.behind;
  return out;
}

bool is_article(const std::string& word) {
  static const std::set<std::string> articles = {"a", "an", "the", "some"};
  return articles.contains(word);
}

bool is_joiner(const std::string& word) {
  static const std::set<std::string> joiners = {"and", "or", "with"};
  return joiners.contains(word) || is_article(word);
}

}  // namespace

std::string_view default_negative_lexicon() {
  return kLexicon;
}

struct NegativeRules::Impl {
  std::vector<WordForm> forms;
  std::map<std::string, std::vector<std::size_t>> by_first_word;

  void add_line(const std::string& line, std::size_t group, const std::string& place) {
    static const std::map<std::string, WordKind> kinds = {
        {"att", WordKind::attribute}, {"obj", WordKind::object}, {"rel", WordKind::relation}};
    const std::size_t colon = line.find(':');
    const Words head = parts_of(line.substr(0, colon));
    if (colon == std::string::npos || head.size() != 2 || !kinds.contains(head[0]))
      user_error(place,
                 ": expected a line such as `att size: small, tiny | large, big`, with the kind att, obj or rel, got ",
                 printable(line, 60));
    const std::vector<std::string> sides = split(line.substr(colon + 1), '|');
    if (sides.size() < 2)
      user_error(place, ": the class ", printable(head[1]), " has nothing to choose from: put | between its words");
    for (std::size_t side = 0; side < sides.size(); ++side)
      for (const std::string& word : split(sides[side], ','))
        add_forms(std::string(strip(word)), kinds.at(head[0]), group, side, place);
  }

  void add_forms(const std::string& word, WordKind kind, std::size_t group, std::size_t side, const std::string& place) {
    if (word.empty() || word.starts_with('/') || word.ends_with('/'))
      user_error(place, ": there is no word before or after a comma or |");
    const std::size_t slash = word.find('/'), first = forms.size();
    const std::string singular = word.substr(0, slash);
    forms.push_back({parts_of(singular), kind, group, side, false, first});
    if (kind != WordKind::object) return;
    const std::string plural = slash == std::string::npos ? make_plural(singular) : word.substr(slash + 1);
    forms.push_back({parts_of(plural), kind, group, side, true, first});
    if (plural == singular)
      forms.pop_back();
    else
      forms[first].pair = first + 1;
  }

  // Finds the longest form at each position; words inside a form are not matched again.
  std::vector<Found> find(const CutText& text) const {
    std::vector<Found> out;
    for (std::size_t i = 0; i < text.words.size(); ++i) {
      const auto candidates = by_first_word.find(text.words[i].plain);
      if (candidates == by_first_word.end()) continue;
      const auto stands_here = [&](const WordForm& form) {
        if (i + form.words.size() > text.words.size()) return false;
        for (std::size_t k = 0; k < form.words.size(); ++k)
          if (text.words[i + k].plain != form.words[k] || (k > 0 && text.words[i + k - 1].behind != " ")) return false;
        return true;
      };
      std::size_t longest = 0;
      for (const std::size_t candidate : candidates->second)
        if (stands_here(forms[candidate])) longest = std::max(longest, forms[candidate].words.size());
      for (const std::size_t candidate : candidates->second)  // a word may belong to several classes
        if (forms[candidate].words.size() == longest && stands_here(forms[candidate]))
          out.push_back({i, &forms[candidate]});
      if (longest > 0) i += longest - 1;
    }
    return out;
  }

  std::vector<Edits> swaps(const CutText& text, const std::vector<Found>& found, WordKind kind) const {
    std::vector<bool> attribute(text.words.size()), joiner(text.words.size());
    for (std::size_t i = 0; i < joiner.size(); ++i) joiner[i] = is_joiner(text.words[i].plain);
    for (const Found& each : found)
      if (each.form->kind == WordKind::attribute)
        std::fill_n(attribute.begin() + static_cast<std::ptrdiff_t>(each.first), each.form->words.size(), true);
    // Returns true if a word other than a joiner stands between the word forms a and b. Ignores attributes unless attributes_count is set.
    const auto is_between = [&](const Found& a, const Found& b, bool attributes_count) {
      for (std::size_t i = a.end(); i < b.first; ++i)
        if (!joiner[i] && (attributes_count || !attribute[i])) return true;
      return false;
    };
    std::vector<Edits> out;
    for (std::size_t a = 0; a < found.size(); ++a)
      for (std::size_t b = a + 1; b < found.size(); ++b) {
        const WordForm &first = *found[a].form, &second = *found[b].form;
        if (first.kind != kind || second.kind != kind || found[b].first < found[a].end()) continue;
        if (kind == WordKind::attribute && excludes(first, second) && is_between(found[a], found[b], false))
          out.push_back({{found[a], &second}, {found[b], &first}});
        if (kind != WordKind::object || (first.group == second.group && first.side == second.side)) continue;
        const bool described = found[a].first > 0 && attribute[found[a].first - 1];
        if (described || is_between(found[a], found[b], true))
          out.push_back({{found[a], &in_number(second, first.plural)}, {found[b], &in_number(first, second.plural)}});
      }
    return out;
  }

  std::vector<Edits> replacements(const std::vector<Found>& found, WordKind kind) const {
    std::vector<Edits> out;
    for (const Found& each : found)
      for (const WordForm& other : forms)
        if (each.form->kind == kind && excludes(*each.form, other) && each.form->plural == other.plural)
          out.push_back({{each, &other}});
    return out;
  }

  const WordForm& in_number(const WordForm& form, bool plural) const { return form.plural == plural ? form : forms[form.pair]; }
};

NegativeRules::NegativeRules(std::string_view lexicon, const std::string& origin) {
  auto impl = std::make_unique<Impl>();
  std::size_t number = 0;
  for (const std::string& line : split(lexicon, '\n')) {
    ++number;
    if (!strip(line).empty() && !strip(line).starts_with('#'))
      impl->add_line(line, number, concat(origin, ":", number));
  }
  if (impl->forms.empty()) user_error(origin, ": holds no words");
  for (std::size_t i = 0; i < impl->forms.size(); ++i) impl->by_first_word[impl->forms[i].words[0]].push_back(i);
  impl_ = std::move(impl);
}

NegativeRules::~NegativeRules() = default;

std::vector<HardNegative> NegativeRules::make(const std::string& caption, std::int64_t each, Random& random) const {
  const CutText text = cut(caption);
  const std::vector<Found> found = impl_->find(text);
  std::vector<HardNegative> out;
  std::set<std::string> there = {caption};
  const auto add = [&](const char* kind, std::vector<Edits> candidates) {
    random.shuffle(candidates);
    std::int64_t added = 0;
    for (const Edits& edits : candidates) {
      if (added == each) return;
      std::string wrong = edited(text, edits);
      if (!there.insert(wrong).second) continue;
      out.push_back({kind, std::move(wrong)});
      ++added;
    }
  };
  add("swap_att", impl_->swaps(text, found, WordKind::attribute));
  add("swap_obj", impl_->swaps(text, found, WordKind::object));
  add("replace_att", impl_->replacements(found, WordKind::attribute));
  add("replace_obj", impl_->replacements(found, WordKind::object));
  add("replace_rel", impl_->replacements(found, WordKind::relation));
  return out;
}

}  // namespace tessera
