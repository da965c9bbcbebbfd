#include <algorithm>
#include <array>
#include <utility>

#include "src/data/tokenizers/byte_pairs.h"
#include "src/data/tokenizers/clip_bpe.h"
#include "src/data/tokenizers/clip_text.h"
#include "src/data/tokenizers/unicode.h"
#include "src/data/tokenizers/vocabulary_file.h"
#include <tessera/base/text.h>
#include <tessera/config/shipped.h>

namespace tessera {
namespace {

class ClipBpe : public Tokenizer {
 public:
  ClipBpe(const ClipBpeSettings& settings, Vocabulary vocabulary)
      : context_length_(settings.context_length),
        cleanup_(cleanup_level(settings.cleanup)),
        pad_is_text_(settings.pad_is_text),
        pairs_(decompressed(vocabulary), vocabulary.origin),
        bytes_(std::move(vocabulary.bytes)) {}

  std::vector<std::int64_t> encode(std::string_view text) const override { return encode(text, context_length_); }
  std::int64_t count_ids(std::string_view text) const override { return std::ssize(encode(text, kAnyLength)); }

  std::string decode(const std::vector<std::int64_t>& ids) const override {
    std::string text;
    for (const std::int64_t id : ids) {
      if (id < 0 || id >= BytePairs::vocab_size)
        user_error("clip-bpe: id ", id, " is not in 0..", BytePairs::vocab_size - 1);
      if (id == BytePairs::end_id) break;  // padding follows the end token; its id is also the id of "!"
      text += pairs_.bytes(id);
    }
    if (text.ends_with(' ')) text.pop_back();
    return repair_utf8(text);
  }

  std::int64_t vocab_size() const override { return BytePairs::vocab_size; }
  std::int64_t context_length() const override { return context_length_; }
  std::int64_t pad_id() const override { return 0; }  // also the id of "!"
  bool pad_is_text() const override { return pad_is_text_; }
  std::vector<std::int64_t> special_ids() const override { return {BytePairs::start_id, BytePairs::end_id}; }
  std::string name() const override { return "clip-bpe"; }
  const std::string& vocabulary_bytes() const override { return bytes_; }

 private:
  std::vector<std::int64_t> encode(std::string_view text, std::int64_t most) const {
    const auto limit = static_cast<std::size_t>(most - 1);
    std::vector<std::int64_t> ids;
    ids.reserve(std::min(limit, text.size() + 1) + 8);  // the last piece may add some ids beyond the limit
    ids.push_back(BytePairs::start_id);
    if (clip_text::is_plain(text))
      encode_plain(text, limit, ids);
    else
      encode_cleaned(clip_text::clean(text, cleanup_), limit, ids);
    if (ids.size() > limit) ids.resize(limit);
    ids.push_back(BytePairs::end_id);
    return ids;
  }

  static Cleanup cleanup_level(const std::string& name) {
    for (const auto& [level, known] :
         {std::pair{Cleanup::none, "none"}, {Cleanup::mojibake, "mojibake"}, {Cleanup::full, "full"}})
      if (name == known) return level;
    return Cleanup::basic;
  }

  void encode_piece(std::string_view piece, std::vector<std::int64_t>& ids) const {
    if (piece == "<start_of_text>")
      ids.push_back(BytePairs::start_id);
    else if (piece == "<end_of_text>")
      ids.push_back(BytePairs::end_id);
    else
      pairs_.encode(piece, ids);
  }

  // The fast path, which handles most captions. It does not decode code points, and copies the text only once, in lower case.
  void encode_plain(std::string_view text, std::size_t limit, std::vector<std::int64_t>& ids) const {
    std::array<char, 1024> small;  // NOLINT: only the part that is read is filled
    std::string large;
    if (text.size() > small.size()) large.resize(text.size());
    char* const lower = large.empty() ? small.data() : large.data();
    std::transform(text.begin(), text.end(), lower,
                   [](char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c); });
    const std::string_view clean(lower, text.size());
    for (std::size_t i = 0; i < clean.size() && ids.size() < limit;) {
      if (clip_text::class_of(clean[i]) == clip_text::space) {
        ++i;
        continue;
      }
      const std::size_t end = clip_text::piece_end(clean, i);
      encode_piece(clean.substr(i, end - i), ids);
      i = end;
    }
  }

  void encode_cleaned(std::u32string_view clean, std::size_t limit, std::vector<std::int64_t>& ids) const {
    std::string piece;
    for (std::size_t i = 0; i < clean.size() && ids.size() < limit;) {
      if ((clip_text::class_of(clean[i]) & (clip_text::space | clip_text::unmatched)) != 0) {
        ++i;
        continue;
      }
      const std::size_t end = clip_text::piece_end(clean, i);
      piece.clear();
      for (; i < end; ++i) unicode::append_utf8(piece, clean[i]);
      encode_piece(piece, ids);
    }
  }

  std::int64_t context_length_;
  Cleanup cleanup_;
  bool pad_is_text_;
  BytePairs pairs_;
  std::string bytes_;
};

}  // namespace

std::shared_ptr<Tokenizer> make_clip_bpe(const ClipBpeSettings& settings, const TokenizerContext& context) {
  const bool shipped = settings.merges.empty() && context.vocabulary.empty() && context.missing.empty();
  const config::FilePath merges = shipped ? config::FilePath(config::clip_vocabulary_file()) : settings.merges;
  return std::make_shared<ClipBpe>(settings, load_vocabulary("clip-bpe", "merges", merges, context));
}

}  // namespace tessera
