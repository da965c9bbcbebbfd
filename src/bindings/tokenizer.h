#pragma once

#include <cstdint>
#include <string>
#include <string_view>

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

/// Returns a text that is the same for all tokenizers that turn texts into the same ids: their name, a hash of their vocabulary, and
/// the ids of a text with capitals, accents and marks.
inline std::string identity_of(const Tokenizer& tokenizer) {
  std::string out = concat(tokenizer.name(), " ", hexadecimal(fingerprint(tokenizer.vocabulary_bytes())));
  for (const std::int64_t id : tokenizer.encode("A  Red Café, 3 dogs' &amp; more!")) out += concat(" ", id);
  return out;
}

}  // namespace tessera
