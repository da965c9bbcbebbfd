#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <tessera/base/text.h>

namespace tessera {

/// Adds a caption without the white space around it; a blank one is none, so that counts and choices need not look at
/// texts.
inline void add_caption(std::string_view text, std::vector<std::string>& captions) {
  if (const std::string_view caption = strip(text); !caption.empty()) captions.emplace_back(caption);
}

}  // namespace tessera
