#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/data/sample.h>

namespace tessera {

/// A line of a Sentences file of Flickr30k Entities: its text without the brackets, and the phrases that the brackets mark.
struct EntitySentence {
  struct Phrase {
    std::string entity;  // the id after EN#; "0" if nothing in the image shows the phrase
    std::array<std::int64_t, 2> span{};
  };
  std::string text;
  std::vector<Phrase> phrases;
};

/// Parses a line such as "[/EN#1/people A man] sits ." Throws SampleError `bad_annotation` on unmatched brackets.
EntitySentence parse_entity_sentence(std::string_view line);

/// Parses the sentences of a file, one per line.
std::vector<EntitySentence> parse_entity_sentences(std::string_view sentences);

/// Returns a map from each entity that has boxes in an Annotations file to the box [top, left, height, width] that encloses these boxes.
/// Throws SampleError `bad_annotation` if the file is damaged.
std::map<std::string, std::array<std::int64_t, 4>> parse_entity_boxes(std::string_view xml);

/// Sets the sentences as a sample's captions, and their phrases as its objects.
void set_entities(std::string_view sentences, std::string_view xml, Sample& sample);

}  // namespace tessera
