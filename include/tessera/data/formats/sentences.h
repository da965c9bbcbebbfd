#pragma once

#include <string>
#include <vector>

#include <tessera/base/text.h>

namespace tessera {

/// The sentences of a caption, without the white space around them: what stands between full stops, line ends and `</s>`
/// (FLAIR, DreamLIP). Blank ones are left out.
inline std::vector<std::string> caption_sentences(std::string text) {
  for (std::size_t at = text.find("</s>"); at != std::string::npos; at = text.find("</s>", at))
    text.replace(at, 4, ".");
  std::vector<std::string> out;
  for (const std::string& line : split(text, '\n'))
    for (const std::string& part : split(line, '.'))
      if (const std::string_view sentence = strip(part); !sentence.empty()) out.emplace_back(sentence);
  return out;
}

}  // namespace tessera
