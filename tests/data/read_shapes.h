#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "src/data/shapes/shapes.h"

namespace tessera {

inline ShapesSettings shapes_settings(const std::string& split, std::int64_t size = 100000) {
  return {.split = split, .size = size};
}

inline int index_in(const std::vector<std::string>& names, const std::string& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? -1 : static_cast<int>(found - names.begin());
}

// An object of an image, read from the sample's tags and boxes.
struct Seen {
  std::string shape;
  std::string color;
  std::string texture = "plain";
  std::string size;
  double x = 0;
  double y = 0;
};

inline std::vector<Seen> look(const Sample& sample) {
  std::vector<Seen> objects;
  std::istringstream tags(sample.object_tags);
  for (std::string tag; std::getline(tags, tag, ',');) {
    std::istringstream words(tag);
    Seen seen;
    for (std::string word; words >> word;) {
      if (index_in(shapes_size_names(), word) >= 0) seen.size = word;
      if (index_in(shapes_texture_names(), word) >= 0) seen.texture = word;
      if (index_in(shapes_color_names(), word) >= 0) seen.color = word;
      if (index_in(shapes_shape_names(), word) >= 0) seen.shape = word;
    }
    const auto& box = sample.objects[objects.size()].box;
    const double side = static_cast<double>(sample.image.width);
    seen.x = (static_cast<double>(box[1]) + static_cast<double>(box[3]) / 2) / side;
    seen.y = (static_cast<double>(box[0]) + static_cast<double>(box[2]) / 2) / side;
    objects.push_back(seen);
  }
  return objects;
}

// What a caption says about the objects of its image. read_caption() finds this out by parsing the caption word by word. It is the inverse
// of the caption generator.
struct Read {
  struct Phrase {
    std::map<std::string, std::string> said;  // the words of the phrase, by kind of attribute ("size", "texture", "color" or "shape")
    std::string place;
    std::string relation;  // relation to the previous phrase
  };
  std::vector<Phrase> phrases;
  std::string tone;
};

inline Read read_caption(const std::string& caption) {
  static const std::map<std::string, std::string> synonyms = {
      {"little", "small"}, {"big", "large"}, {"under", "below"}};
  std::vector<std::string> words;
  std::istringstream stream(caption);
  for (std::string word; stream >> word;) {
    if (word.back() == ',') word.pop_back();
    words.push_back(synonyms.contains(word) ? synonyms.at(word) : word);
  }
  Read out;
  Read::Phrase next;
  const auto word_at = [&](std::size_t i) { return i < words.size() ? words[i] : std::string(); };
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (index_in(shapes_size_names(), word) >= 0) next.said["size"] = word;
    if (index_in(shapes_texture_names(), word) >= 0) next.said["texture"] = word;
    if (index_in(shapes_color_names(), word) >= 0) next.said["color"] = word;
    if (word == "above" || word == "below" || ((word == "left" || word == "right") && word_at(i + 1) == "of"))
      next.relation = word;
    if ((word == "at" || word == "on" || word == "in") && word_at(i + 1) == "the")
      out.phrases.back().place = word_at(i + 2);
    if (word_at(i + 1) == "background") out.tone = word;
    if (index_in(shapes_shape_names(), word) < 0) continue;
    next.said["shape"] = word;
    out.phrases.push_back(next);
    next = {};
  }
  return out;
}

inline bool relation_holds(const std::string& relation, const Seen& a, const Seen& b, double margin) {
  if (relation == "left") return a.x + margin < b.x;
  if (relation == "right") return a.x > b.x + margin;
  if (relation == "above") return a.y + margin < b.y;
  if (relation == "below") return a.y > b.y + margin;
  return true;
}

// Returns whether the object is at this place of the image. `margin` is a fraction of the image's size: a positive margin makes the
// condition stricter, a negative one looser.
inline bool place_holds(const std::string& place, const Seen& o, double margin) {
  if (place == "top") return o.y < 0.5 - margin;
  if (place == "bottom") return o.y > 0.5 + margin;
  if (place == "left") return o.x < 0.5 - margin;
  if (place == "right") return o.x > 0.5 + margin;
  if (place == "middle") return std::abs(o.x - 0.5) < 0.25 - margin && std::abs(o.y - 0.5) < 0.25 - margin;
  return true;
}

// Returns whether the phrases can be assigned to objects that fit them, each phrase to a different object.
inline bool holds(const Read& read, const std::vector<Seen>& objects, double margin, std::vector<std::size_t> chosen = {}) {
  if (chosen.size() == read.phrases.size()) return true;
  const Read::Phrase& phrase = read.phrases[chosen.size()];
  for (std::size_t i = 0; i < objects.size(); ++i) {
    const Seen& o = objects[i];
    if (std::find(chosen.begin(), chosen.end(), i) != chosen.end()) continue;
    const std::map<std::string, std::string> truth = {
        {"shape", o.shape}, {"color", o.color}, {"texture", o.texture}, {"size", o.size}};
    const bool fits = std::all_of(phrase.said.begin(), phrase.said.end(),
                                  [&](const auto& kv) { return truth.at(kv.first) == kv.second; });
    if (!fits || !place_holds(phrase.place, o, margin)) continue;
    if (!phrase.relation.empty() && !relation_holds(phrase.relation, objects[chosen.back()], o, margin)) continue;
    std::vector<std::size_t> more = chosen;
    more.push_back(i);
    if (holds(read, objects, margin, more)) return true;
  }
  return false;
}

inline std::uint64_t fingerprint(const Sample& sample) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;  // FNV-1a
  const auto add = [&](const auto& bytes) {
    for (const auto byte : bytes) hash = (hash ^ static_cast<std::uint8_t>(byte)) * 0x100000001B3ULL;
  };
  add(sample.image.pixels);
  add(sample.mask);
  for (const std::string& caption : sample.captions) add(caption);
  for (const HardNegative& negative : sample.negatives) add(negative.kind + negative.caption);
  add(sample.summary + sample.object_tags + sample.key);
  for (const float value : sample.regions) add(std::to_string(std::lround(value * 1000)));
  return hash;
}

}  // namespace tessera
