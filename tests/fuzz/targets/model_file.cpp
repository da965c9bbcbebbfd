// Reads model files: the settings, the tokenizer and the vocabulary in the metadata of a safetensors file.
#include <cstdint>

#include <nlohmann/json.hpp>

#include "src/base/digest.h"
#include "tests/fuzz/target.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/models/model_file.h>

namespace tessera::fuzz {

void fuzz_model_file(std::string_view input) {
  static InputFile file;
  // The input is three texts separated by lines "%%".
  const std::size_t first = input.find("\n%%\n");
  const std::string_view rest = first == std::string_view::npos ? std::string_view() : input.substr(first + 4);
  const std::size_t second = rest.find("\n%%\n");
  const std::string vocabulary(second == std::string_view::npos ? std::string_view() : rest.substr(second + 4));
  const bool damaged = input.size() % 8 == 0;
  const nlohmann::json metadata = {
      {"tessera.format", "1"},
      {"tessera.model", repair_utf8(input.substr(0, first))},
      {"tessera.tokenizer", repair_utf8(rest.substr(0, second))},
      {"tessera.vocabulary", damaged ? repair_utf8(vocabulary) : base64_encode(vocabulary)},
      {"tessera.vocabulary_sha256", sha256(vocabulary)}};
  const std::string header = nlohmann::json({{"__metadata__", metadata}}).dump();
  const std::uint64_t length = header.size();
  file.write(std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + header);
  allowing<UserError>([&] {
    load_model_file(file.path());
  });
}

}  // namespace tessera::fuzz
