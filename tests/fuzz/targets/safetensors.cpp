// Reads safetensors files: headers, offsets and shapes.
#include <cstdint>
#include <cstring>

#include <ATen/core/Tensor.h>

#include "tests/fuzz/target.h"
#include <tessera/base/error.h>
#include <tessera/io/safetensors.h>

namespace tessera::fuzz {
namespace {

// If the end of the header's JSON text can be found, writes the length of this text into the header's length field.
std::string with_length(std::string_view input) {
  std::string out(input);
  const std::size_t end = out.rfind('}');
  if (out.size() < 9 || out[8] != '{' || end == std::string::npos) return out;
  const std::uint64_t length = end + 1 - 8;
  std::memcpy(out.data(), &length, sizeof(length));
  return out;
}

}  // namespace

void fuzz_safetensors(std::string_view input) {
  static InputFile file;
  file.write(input.size() % 8 == 0 ? std::string(input) : with_length(input));
  allowing<UserError>([&] {
    const io::TensorFile loaded = io::load_safetensors(file.path());
    std::size_t bytes = 0;
    for (const auto& [name, tensor] : loaded.tensors) bytes += tensor.nbytes();
    require(bytes <= input.size(), "safetensors: more tensors than bytes");
  });
}

}  // namespace tessera::fuzz
