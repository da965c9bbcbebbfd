#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {

/// Returns whether a caption without white space at its ends has a line break.
inline bool has_line_break(std::string_view caption) {
  return caption.find_first_of("\r\n") != std::string_view::npos;
}

/// Counts captions with line breaks: lists and files with one caption per line may have been read as one caption. Thread-safe.
class LineBreaks {
 public:
  void add(std::string_view caption) {
    if (has_line_break(caption)) ++broken_;
    ++captions_;
  }
  void add(const std::vector<std::string>& captions) {
    for (const std::string& caption : captions) add(caption);
  }
  /// Returns whether at least two captions, and at least half of them, have line breaks.
  bool are_many() const { return broken_ >= 2 && 2 * broken_ >= captions_; }
  /// Returns "N of M captions have line breaks; each is one caption".
  std::string describe() const {
    return concat(with_thousands(broken_), " of ", with_thousands(captions_),
                  " captions have line breaks; each is one caption");
  }

 private:
  std::atomic<std::int64_t> captions_ = 0, broken_ = 0;
};

}  // namespace tessera
