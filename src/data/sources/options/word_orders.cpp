#include "src/data/sources/options/word_orders.h"

#include <functional>

#include "src/base/digest.h"
#include "src/data/formats/list_file.h"
#include <tessera/base/random.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

using Words = std::vector<std::string>;

constexpr int kTries = 20;  // number of attempts to find a different order, which may not exist if words are repeated
constexpr std::size_t kRun = 3;

/// Splits a caption into lower-case words as ARO does, at white space and kMarks. Commas and apostrophes stay with their words.
Words words_of(const std::string& caption) {
  constexpr std::string_view kMarks = ".!\"()*#:;~";
  Words words;
  std::string cleaned = caption;
  for (char& c : cleaned) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '\n' || c == '\t' || kMarks.find(c) != std::string_view::npos) c = ' ';
  }
  for (std::string& word : split(cleaned, ' '))
    if (!word.empty()) words.push_back(std::move(word));
  return words;
}

std::string sentence_of(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

/// Shuffles the words at `places` and leaves all others in place.
Words shuffled_at(Words words, const std::vector<std::size_t>& places, Random& random) {
  Words moved;
  for (const std::size_t place : places) moved.push_back(words[place]);
  random.shuffle(moved);
  for (std::size_t i = 0; i < places.size(); ++i) words[places[i]] = moved[i];
  return words;
}

std::vector<Words> runs_of(const Words& words) {
  std::vector<Words> runs;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i % kRun == 0) runs.emplace_back();
    runs.back().push_back(words[i]);
  }
  return runs;
}

Words joined(const std::vector<Words>& runs) {
  Words words;
  for (const Words& run : runs) words.insert(words.end(), run.begin(), run.end());
  return words;
}

/// Returns a word in the form used by the lexicon: "cat" for "cat,".
std::string bare(const std::string& word) {
  std::string out = word;
  std::erase_if(out, [](char c) { return c == ',' || c == '\'' || c == '?'; });
  return out;
}

}  // namespace

WordOrders::WordOrders(const std::string& lexicon) {
  for (const std::string& word : read_list(lexicon)) lexicon_.insert(word);
}

std::vector<std::string> WordOrders::of(const std::string& caption) const {
  const Words words = words_of(caption);
  std::vector<std::size_t> named, others;
  for (std::size_t i = 0; i < words.size(); ++i) (lexicon_.contains(bare(words[i])) ? named : others).push_back(i);
  const std::vector<Words> runs = runs_of(words);
  const std::vector<std::function<Words(Random&)>> orders = {
      [&](Random& random) { return shuffled_at(words, named, random); },
      [&](Random& random) { return shuffled_at(words, others, random); },
      [&](Random& random) {
        std::vector<Words> moved = runs;
        random.shuffle(moved);
        return joined(moved);
      },
      [&](Random& random) {
        std::vector<Words> moved = runs;
        for (Words& run : moved) random.shuffle(run);
        return joined(moved);
      }};
  std::vector<std::string> texts = {sentence_of(words)};
  for (std::size_t i = 0; i < orders.size(); ++i) {
    Random random(0, Purpose::shuffle, {crc32(texts[0]), i});
    Words order = words;
    for (int tries = 0; tries < kTries && order == words; ++tries) order = orders[i](random);
    if (order != words) texts.push_back(sentence_of(order));
  }
  return texts;
}

}  // namespace tessera
