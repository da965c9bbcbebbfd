#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <tessera/config/file_path.h>
#include <tessera/data/tokenizers/tokenizer.h>

namespace tessera {

/// CLIP's byte pair encoding, with the ids of OpenCLIP 3.3: start token, lower-cased pieces, end token.
struct ClipBpeSettings {
  config::FilePath merges;
  std::int64_t context_length = 77;
  std::string cleanup = "basic";
  bool pad_is_text = false;
};

template <class Visitor>
void fields(Visitor& v, ClipBpeSettings& s) {
  v("merges", s.merges, "path of bpe_simple_vocab_16e6.txt.gz, compressed or not; empty: CLIP's, which ships with Tessera");
  v("context_length", s.context_length, "maximum number of ids, including start and end token", config::at_least(1));
  v("cleanup", s.cleanup,
    "which part of ftfy to apply first: none, basic (all but the repair of wrongly decoded text), mojibake (basic, and the repair of "
    "UTF-8 that was read as Latin-1 or Windows-1252), or full (all of it, as in OpenCLIP)",
    config::one_of({"none", "basic", "mojibake", "full"}));
  v("pad_is_text", s.pad_is_text, "whether the text tower treats padding as text (MobileCLIP2-L-14): masks are true everywhere");
}

/// Throws UserError if the file is missing, has another format than its name says, or holds too few merges.
std::shared_ptr<Tokenizer> make_clip_bpe(const ClipBpeSettings& settings, const TokenizerContext& context);

/// Returns the tokenizer.json of published CLIP models (Hugging Face's CLIPTokenizer) with these merges. `merges` is the text of
/// bpe_simple_vocab_16e6.txt, decompressed; `origin` is its name in errors. `start` and `end` are the names of the special tokens. Throws
/// UserError if there are too few merges, or if they are not CLIP's.
nlohmann::json clip_tokenizer_json(std::string_view merges, const std::string& origin, const std::string& start, const std::string& end);

}  // namespace tessera
