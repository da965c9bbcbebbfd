#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "src/base/digest.h"
#include <tessera/base/error.h>
#include <tessera/data/tokenizers/tokenizer.h>

namespace tessera {

/// Returns the bytes of a tensor, uint8 [n]. They are valid as long as the tensor, which must be contiguous and on the CPU.
inline std::string_view view_of(const at::Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.const_data_ptr<std::uint8_t>()),
          static_cast<std::size_t>(tensor.numel())};
}

/// Returns a text that is the same for all tokenizers that turn texts into the same ids, apart from the length at which they cut: their
/// name, a hash of their vocabulary, and the first ids of short texts with capitals, accents and marks.
inline std::string identity_of(const Tokenizer& tokenizer) {
  std::string out = concat(tokenizer.name(), " ", hexadecimal(fingerprint(tokenizer.vocabulary_bytes())));
  for (const char* text : {"A  B", "Red", "Caf\u00e9", "3", "s'", "&amp;", "!"}) {
    const std::vector<std::int64_t> ids = tokenizer.encode(text);
    for (std::size_t i = 0; i < std::min<std::size_t>(ids.size(), 3); ++i) out += concat(" ", ids[i]);
  }
  return out;
}

}  // namespace tessera
