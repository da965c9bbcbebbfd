#include "src/data/tokenizers/vocabulary_file.h"

#include <memory>
#include <string_view>
#include <vector>

#include "src/data/formats/byte_stream.h"
#include "src/io/stand_in.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

class MemoryBytes : public ByteStream {
 public:
  explicit MemoryBytes(std::string_view bytes) : rest_(bytes) {}

  std::size_t read(char* out, std::size_t size) override {
    const std::size_t count = rest_.copy(out, size);
    rest_.remove_prefix(count);
    return count;
  }

 private:
  std::string_view rest_;
};

}  // namespace

Vocabulary load_vocabulary(const std::string& tokenizer, const std::string& key, const config::FilePath& path,
                           const TokenizerContext& context) {
  if (!context.vocabulary.empty()) return {context.vocabulary, concat(tokenizer, ": vocabulary of the checkpoint")};
  if (path.empty()) {
    if (!context.missing.empty()) user_error(context.missing);
    user_error(path.origin, path.origin.empty() ? "" : ": ", tokenizer, ": ", key, " is not set: give the path of ",
               tokenizer == "wordpiece" ? "a vocab.txt" : "the vocabulary file; tessera-data train-sentencepiece makes one");
  }
  if (!path.origin.empty()) config::require(path);
  const std::string origin = concat(tokenizer, ": ", key, ": ");
  try {
    return {io::read_data_file(path), origin + path.name};
  } catch (const UserError& error) {
    throw UserError(origin + error.what());
  }
}

std::string decompressed(const Vocabulary& vocabulary) {
  const std::string& bytes = vocabulary.bytes;
  if (!bytes.starts_with("\x1F\x8B")) {
    if (vocabulary.origin.ends_with(".gz")) user_error(vocabulary.origin, ": is named .gz but is not gzip-compressed");
    return bytes;
  }
  constexpr std::size_t longest = 64 << 20;  // bytes; usual vocabularies have 1 or 2 million bytes
  const std::unique_ptr<ByteStream> stream = decompress(std::make_unique<MemoryBytes>(bytes));
  std::string text;
  std::vector<char> block(1 << 16);
  try {
    while (const std::size_t size = stream->read(block.data(), block.size())) {
      text.append(block.data(), size);
      if (text.size() > longest)
        user_error(vocabulary.origin, ": decompresses to more than ", longest, " bytes: this is not a vocabulary");
    }
  } catch (const StreamError& error) {
    user_error(vocabulary.origin, ": damaged gzip file: ", error.what(), " (after ", text.size(), " bytes)");
  }
  return text;
}

}  // namespace tessera
