#include "src/data/sources/entities.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "src/base/printable.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/data/source.h>

namespace tessera {
namespace {

using EntityBox = std::array<std::int64_t, 4>;

constexpr std::string_view kMark = "[/EN#";

[[noreturn]] void refuse_entity(const std::string& text) {
  throw SampleError("bad_annotation", text);
}

// Returns the texts between <name> and </name>, in order.
std::vector<std::string_view> xml_elements(std::string_view xml, const std::string& name) {
  const std::string open = "<" + name + ">", close = "</" + name + ">";
  std::vector<std::string_view> out;
  for (std::size_t at = xml.find(open); at != std::string_view::npos; at = xml.find(open, at)) {
    at += open.size();
    const std::size_t end = xml.find(close, at);
    if (end == std::string_view::npos) refuse_entity("its Annotations file is cut off: " + open + " is not closed");
    out.push_back(strip(xml.substr(at, end - at)));
    at = end + close.size();
  }
  return out;
}

std::int64_t xml_pixel(std::string_view box, const char* name) {
  const std::vector<std::string_view> found = xml_elements(box, name);
  double value = 0;
  const bool good =
      found.size() == 1 && std::from_chars(found[0].data(), found[0].data() + found[0].size(), value).ec == std::errc();
  if (!good || !(std::abs(value) < 1e6)) refuse_entity(concat("a box of its Annotations file has no number ", name));
  return std::llround(value);
}

EntityBox box_around(const EntityBox& a, const EntityBox& b) {
  const std::int64_t top = std::min(a[0], b[0]), left = std::min(a[1], b[1]);
  return {top, left, std::max(a[0] + a[2], b[0] + b[2]) - top, std::max(a[1] + a[3], b[1] + b[3]) - left};
}

}  // namespace

EntitySentence parse_entity_sentence(std::string_view line) {
  EntitySentence out;
  while (!line.empty()) {
    const std::size_t open = line.find(kMark);
    out.text += line.substr(0, open);
    if (open == std::string_view::npos) break;
    line.remove_prefix(open + kMark.size());
    const std::size_t close = line.find(']'), slash = line.find('/'), space = line.find(' ');
    if (close == std::string_view::npos || slash > space || space > close)
      refuse_entity("a phrase of its Sentences file is malformed: [/EN#" + printable(line, 40));
    const auto begin = static_cast<std::int64_t>(out.text.size());
    out.text += line.substr(space + 1, close - space - 1);
    out.phrases.push_back({std::string(line.substr(0, slash)), {begin, static_cast<std::int64_t>(out.text.size())}});
    line.remove_prefix(close + 1);
  }
  return out;
}

std::map<std::string, EntityBox> parse_entity_boxes(std::string_view xml) {
  if (xml_elements(xml, "annotation").empty()) refuse_entity("its Annotations file holds no <annotation>");
  std::map<std::string, EntityBox> boxes;
  for (const std::string_view object : xml_elements(xml, "object")) {
    std::optional<EntityBox> whole;
    for (const std::string_view box : xml_elements(object, "bndbox")) {
      const std::int64_t left = xml_pixel(box, "xmin"), top = xml_pixel(box, "ymin");
      const EntityBox read = {top, left, xml_pixel(box, "ymax") - top, xml_pixel(box, "xmax") - left};
      if (read[2] < 0 || read[3] < 0) refuse_entity("a box of its Annotations file ends before it begins");
      whole = whole ? box_around(*whole, read) : read;
    }
    if (!whole) continue;
    for (const std::string_view name : xml_elements(object, "name")) {
      const auto [known, is_new] = boxes.emplace(name, *whole);
      if (!is_new) known->second = box_around(known->second, *whole);
    }
  }
  return boxes;
}

std::vector<EntitySentence> parse_entity_sentences(std::string_view sentences) {
  std::vector<EntitySentence> out;
  for (const std::string& line : split(sentences, '\n'))
    if (!strip(line).empty()) out.push_back(parse_entity_sentence(strip(line)));
  return out;
}

void set_entities(std::string_view sentences, std::string_view xml, Sample& sample) {
  sample.captions.clear();
  sample.objects.clear();
  const std::map<std::string, EntityBox> boxes = parse_entity_boxes(xml);
  for (const EntitySentence& sentence : parse_entity_sentences(sentences)) {
    sample.captions.push_back(sentence.text);
    for (const EntitySentence::Phrase& phrase : sentence.phrases) {
      if (phrase.entity == "0") continue;
      ObjectAnnotation object;
      object.span = phrase.span;
      object.caption = std::ssize(sample.captions) - 1;
      object.phrase = sentence.text.substr(static_cast<std::size_t>(phrase.span[0]),
                                           static_cast<std::size_t>(phrase.span[1] - phrase.span[0]));
      if (const auto box = boxes.find(phrase.entity); box != boxes.end()) object.box = box->second;
      sample.objects.push_back(std::move(object));
    }
  }
}

}  // namespace tessera
