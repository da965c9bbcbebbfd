#pragma once

#include <string>
#include <vector>

#include <src/data/shapes/scene.h>

namespace tessera::shapes {

/// Words of one meaning or one kind, the most frequent first. The frequency of word n is proportional to n to the power of minus the
/// steepness.
class WordList {
 public:
  static constexpr double kZipf = 1;
  static constexpr double kSynonyms = 1.5;  // the first of 25 is 45 % of all: captions mostly call a circle a circle

  /// Words with spaces between them; the steepness is kZipf or kSynonyms.
  explicit WordList(const char* words, double steepness = kZipf);

  /// The word that a number in [0, 1) chooses; uniform numbers give the words their frequencies.
  const std::string& at(double number) const;

  const std::vector<std::string>& words() const { return words_; }

 private:
  std::vector<std::string> words_;
  std::vector<double> ends_;  // of each word's part of [0, 1)
};

/// Synonyms of what an image shows; no word stands for two shapes, two colors, ...
const WordList& shape_words(int shape);
const WordList& color_words(int color);
const WordList& texture_words(int texture);
const WordList& size_words(int size);
const WordList& backdrop_words(Tone tone, Backdrop backdrop);
/// Times and weather that are as light or dark as the background.
const WordList& time_words(Tone tone);
const WordList& count_words(std::size_t count);

/// What captions from the web say besides, whatever the image shows.
enum class Topic : int { opinion, material, person, name, city, deed, action, genre, event, subject, shop };
const WordList& topic_words(Topic topic);

/// All words that captions of the style `web` can have, sorted; commas are none.
std::vector<std::string> web_vocabulary();

}  // namespace tessera::shapes
