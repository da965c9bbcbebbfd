#pragma once

#include <string>
#include <vector>

#include <src/data/shapes/scene.h>

namespace tessera::shapes {

/// Synonyms or words of one kind, most frequent first. The frequency of the n-th word is proportional to n to the power of -steepness.
class WordList {
 public:
  static constexpr double kZipf = 1;
  // steepness (Zipf exponent) of synonyms; the first of 25 words has a frequency of 45 %, so that a circle is most often called "circle"
  static constexpr double kSynonyms = 1.5;

  /// `words` are separated by spaces; `steepness` is kZipf or kSynonyms.
  explicit WordList(const std::string& words, double steepness = kZipf);

  /// Returns the word that `number` in [0, 1) selects. Uniform random numbers select each word with its frequency.
  const std::string& at(double number) const;

  const std::vector<std::string>& words() const { return words_; }

 private:
  std::vector<std::string> words_;
  std::vector<double> ends_;  // where each word's part of the interval [0, 1) ends
};

/// Each list holds the synonyms for one shape, color, texture, size or backdrop. No word stands for two shapes, for two colors and so on.
const WordList& shape_words(int shape);
const WordList& color_words(int color);
const WordList& texture_words(int texture);
const WordList& size_words(int size);
const WordList& backdrop_words(Tone tone, Backdrop backdrop);
/// Words for times and weather that fit a background of this tone (for example, "night" for a dark one).
const WordList& time_words(Tone tone);
const WordList& count_words(std::size_t count);

/// Kinds of words that web captions add independently of what the image shows.
enum class Topic : int { opinion, material, person, name, city, deed, action, genre, event, subject, shop };
const WordList& topic_words(Topic topic);

}  // namespace tessera::shapes
