#include "src/data/tokenizers/vocabulary_file.h"

#include <array>
#include <memory>

#include <archive.h>
#include <archive_entry.h>

#include <tessera/base/error.h>
#include <tessera/io/atomic_file.h>

namespace tessera {

Vocabulary load_vocabulary(const std::string& tokenizer, const std::string& key, const std::string& path,
                           const TokenizerContext& context) {
  if (!context.vocabulary.empty()) return {context.vocabulary, concat(tokenizer, ": vocabulary of the checkpoint")};
  if (path.empty()) user_error(tokenizer, ": ", key, " is not set: give the path of the vocabulary file");
  const std::string origin = concat(tokenizer, ": ", key, ": ");
  try {
    return {io::read_file(path), origin + path};
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
  const auto close = [](archive* a) { archive_read_free(a); };
  constexpr std::size_t longest = 64 << 20;  // bytes; vocabularies hold 1 or 2 million
  const std::unique_ptr<archive, decltype(close)> reader(archive_read_new(), close);
  archive_read_support_filter_gzip(reader.get());
  archive_read_support_format_raw(reader.get());
  archive_entry* entry = nullptr;
  bool good = archive_read_open_memory(reader.get(), bytes.data(), bytes.size()) == ARCHIVE_OK &&
              archive_read_next_header(reader.get(), &entry) == ARCHIVE_OK;
  std::string text;
  std::array<char, 1 << 16> block{};
  while (good) {
    const la_ssize_t size = archive_read_data(reader.get(), block.data(), block.size());
    if (size == 0) break;
    good = size > 0;
    if (good) text.append(block.data(), static_cast<std::size_t>(size));
    if (text.size() > longest)
      user_error(vocabulary.origin, ": decompresses to more than ", longest, " bytes: that is no vocabulary");
  }
  if (!good) user_error(vocabulary.origin, ": damaged gzip file: decompression failed after ", text.size(), " bytes");
  return text;
}

}  // namespace tessera
