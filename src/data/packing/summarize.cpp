#include <algorithm>
#include <cctype>
#include <map>

#include "src/data/packing/summarize.h"
#include <tessera/base/text.h>

namespace tessera {
namespace {

constexpr std::size_t kShortWord = 4;  // bytes; shorter words are mostly articles and prepositions

using Words = std::vector<std::string>;

bool is_word_byte(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x80 || std::isalnum(byte) != 0;
}

// Returns the letters and digits of a word, with ASCII letters in lower case; empty if it has none.
std::string plain(const std::string& word) {
  std::string out;
  for (const char c : word)
    if (is_word_byte(c)) out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string without_brackets(const std::string& text) {
  std::string out;
  int depth = 0;
  for (const char c : text) {
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (depth == 0) out += c;
    if ((c == ')' || c == ']' || c == '}') && depth > 0) --depth;
  }
  // An unclosed bracket is probably a typo, so the text is kept.
  return depth == 0 ? out : text;
}

bool is_link_or_tag(const std::string& word) {
  return word.starts_with("http://") || word.starts_with("https://") || word.starts_with("www.") ||
         word.starts_with("#") || word.starts_with("@");
}

bool ends_sentence(const std::string& word) {
  return std::string_view(".!?;").find(word.back()) != std::string_view::npos;
}

// Splits a caption into sentences, and each sentence into words.
std::vector<Words> sentences_of(const std::string& caption) {
  std::vector<Words> out(1);
  for (const std::string& line : split(without_brackets(caption), '\n')) {
    for (const std::string& word : split(line, ' ')) {
      const std::string text(strip(word));
      if (text.empty() || is_link_or_tag(text)) continue;
      out.back().push_back(text);
      if (ends_sentence(text)) out.emplace_back();
    }
    out.emplace_back();
  }
  std::erase_if(out, [](const Words& sentence) {
    return std::all_of(sentence.begin(), sentence.end(), [](const std::string& word) { return plain(word).empty(); });
  });
  return out;
}

double score(const Words& sentence, const std::map<std::string, int>& frequency) {
  double sum = 0, count = 0;
  for (const std::string& word : sentence)
    if (const auto found = frequency.find(plain(word)); found != frequency.end()) sum += found->second, ++count;
  return count > 0 ? sum / count : 0;
}

std::string shortened(const Words& sentence, std::size_t max_words) {
  std::size_t end = std::min(max_words, sentence.size());
  if (end < sentence.size())
    for (std::size_t i = end; i > max_words / 2; --i)
      if (sentence[i - 1].ends_with(',')) {
        end = i;
        break;
      }
  std::string out;
  for (std::size_t i = 0; i < end; ++i) out += (i == 0 ? "" : " ") + sentence[i];
  while (!out.empty() && std::string_view(".,;:!?-").find(out.back()) != std::string_view::npos) out.pop_back();
  return std::string(strip(out));
}

}  // namespace

std::string summarize(const std::vector<std::string>& captions, std::size_t max_words) {
  std::vector<Words> sentences;
  for (const std::string& caption : captions)
    for (Words& sentence : sentences_of(caption)) sentences.push_back(std::move(sentence));
  if (sentences.empty()) return "";
  std::map<std::string, int> frequency;
  for (const Words& sentence : sentences)
    for (const std::string& word : sentence)
      if (const std::string text = plain(word); text.size() >= kShortWord) ++frequency[text];
  const auto best = std::max_element(sentences.begin(), sentences.end(), [&](const Words& a, const Words& b) {
    return score(a, frequency) < score(b, frequency);
  });
  return shortened(*best, max_words);
}

}  // namespace tessera
