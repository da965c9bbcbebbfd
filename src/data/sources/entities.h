#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/data/sample.h>

namespace tessera {

/// A line of Flickr30k Entities' Sentences without its brackets, and the phrases they marked.
struct EntitySentence {
  struct Phrase {
    std::string entity;  // EN#: "0" = nothing in the picture shows it
    std::array<std::int64_t, 2> span{};
  };
  std::string text;
  std::vector<Phrase> phrases;
};

/// "[/EN#1/people A man] sits ." Throws SampleError `bad_annotation` on brackets that do not match.
EntitySentence parse_entity_sentence(std::string_view line);

/// The sentences of a file, one a line.
std::vector<EntitySentence> parse_entity_sentences(std::string_view sentences);

/// Boxes [top, left, height, width] around all that an Annotations file marks for each entity. Throws SampleError
/// `bad_annotation`.
std::map<std::string, std::array<std::int64_t, 4>> parse_entity_boxes(std::string_view xml);

/// Captions of all sentences, and their phrases as objects.
void set_entities(std::string_view sentences, std::string_view xml, Sample& sample);

}  // namespace tessera
