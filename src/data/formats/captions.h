#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/base/text.h>

namespace tessera {

/// Adds a caption without surrounding white space. Blank captions are dropped, so that code that counts or chooses captions
/// need not check their texts.
inline void add_caption(std::string_view text, std::vector<std::string>& captions) {
  if (const std::string_view caption = strip(text); !caption.empty()) captions.emplace_back(caption);
}

/// Splits a text into sentences: at every full stop, line end and </s>. Unicode white space around a sentence is stripped, as by Python's
/// str.strip(), and empty sentences are dropped. Decimal numbers are split too, because the published sentences of long captions were made
/// that way (DreamLIP, arXiv 2403.17007; FLAIR, arXiv 2412.03561). Bytes that are not UTF-8 are kept.
std::vector<std::string> caption_sentences(std::string_view text);

/// Returns whether a caption without white space at its ends has a line break.
inline bool has_line_break(std::string_view caption) {
  return caption.find_first_of("\r\n") != std::string_view::npos;
}

/// Counts captions with line breaks: lists and files with one caption per line may have been read as one caption. Thread-safe.
class LineBreaks {
 public:
  void add(const std::vector<std::string>& captions) {
    for (const std::string& caption : captions) broken_ += has_line_break(caption) ? 1 : 0;
    captions_ += std::ssize(captions);
  }
  /// Returns whether at least two captions, and at least half of them, have line breaks.
  bool are_many() const { return broken_ >= 2 && 2 * broken_ >= captions_; }
  /// Returns "N of M captions have line breaks; each is one caption".
  std::string describe() const;

 private:
  std::atomic<std::int64_t> captions_ = 0, broken_ = 0;
};

}  // namespace tessera
