#pragma once

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

}  // namespace tessera
