#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <tessera/config/file_path.h>
#include <tessera/data/tokenizers/tokenizer.h>

/// The tokenizers that run on the engine for tokenizer.json.
namespace tessera {

/// A tokenizer.json as Hugging Face's tokenizers library writes it: byte pairs (GPT-2, CLIP, Llama, Gemma), WordPiece (BERT),
/// Unigram (XLM-RoBERTa, T5) or WordLevel. The ids are the library's.
struct TokenizerJsonSettings {
  config::FilePath model{};
  std::int64_t context_length = 64;
  std::int64_t pad_id = 0;
  bool pad_is_text = false;
  std::string cleanup = "none";
  std::int64_t zero_id = -1;
};

template <class Visitor>
void fields(Visitor& v, TokenizerJsonSettings& s) {
  v("model", s.model,
    "path of tokenizer.json; or of vocab.json (with merges.txt next to it), vocab.txt or a SentencePiece model, which are "
    "converted to a tokenizer.json as transformers does");
  v("context_length", s.context_length, "maximum number of ids, including special tokens", config::at_least(1));
  v("pad_id", s.pad_id, "padding id", config::at_least(0));
  v("pad_is_text", s.pad_is_text, "whether the text tower treats padding as text (SigLIP): masks are true everywhere");
  v("cleanup", s.cleanup,
    "OpenCLIP's text cleanup before such a tokenizer: none, whitespace, lower or canonicalize (no punctuation, lower case); "
    "all except none repair the text by ftfy's rules first",
    config::one_of({"none", "whitespace", "lower", "canonicalize"}));
  v("zero_id", s.zero_id, "id to replace by 0 (OpenCLIP's strip_sep_token, for the separator of CLIPA's tokenizer); -1: none",
    config::at_least(-1));
}

/// Throws UserError if the file is missing or damaged, or if a part of it is not supported; the message names the part.
std::shared_ptr<Tokenizer> make_tokenizer_json(const TokenizerJsonSettings& settings, const TokenizerContext& context);

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

/// BERT's word pieces, with the ids of Hugging Face's BertTokenizer (the Rust engine): [CLS], pieces, [SEP].
struct WordPieceSettings {
  config::FilePath vocab;
  std::int64_t context_length = 76;
  bool lower_case = true;
};

template <class Visitor>
void fields(Visitor& v, WordPieceSettings& s) {
  v("vocab", s.vocab, "path of vocab.txt, one piece per line");
  v("context_length", s.context_length, "maximum number of ids, including [CLS] and [SEP]", config::at_least(2));
  v("lower_case", s.lower_case, "lower-case and remove accents (uncased BERT)");
}

/// Throws UserError if the file is missing or lacks one of [PAD], [UNK], [CLS], [SEP], [MASK].
std::shared_ptr<Tokenizer> make_wordpiece(const WordPieceSettings& settings, const TokenizerContext& context);

/// Returns BERT's tokenizer.json with these pieces, the bytes of a vocab.txt. `origin` is the file's name in errors. Throws UserError as
/// make_wordpiece() does.
nlohmann::json wordpiece_tokenizer_json(const std::string& pieces, bool lower_case, const std::string& origin);

}  // namespace tessera
