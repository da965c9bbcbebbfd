#include <algorithm>
#include <array>

#include "src/data/tokenizers/bert_text.h"
#include "src/data/tokenizers/unicode.h"
#include "src/data/tokenizers/vocabulary_file.h"
#include "src/data/tokenizers/word_table.h"
#include "src/data/tokenizers/wordpiece.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

enum Special : std::size_t { pad, unknown, start, end, mask };
constexpr std::array<std::string_view, 5> special_names = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
constexpr std::string_view continuation = "##";

class WordPiece : public Tokenizer {
 public:
  WordPiece(const WordPieceSettings& settings, Vocabulary vocabulary)
      : settings_(settings), bytes_(std::move(vocabulary.bytes)) {
    read_pieces();
    for (std::size_t i = 0; i < special_names.size(); ++i) {
      special_[i] = first_.find(special_names[i]);
      if (special_[i] == WordTable::none)
        user_error(vocabulary.origin, ": has no ", special_names[i], " among its ", names_.size(),
                   " lines; expected BERT's vocab.txt, one piece per line");
    }
  }

  std::vector<std::int64_t> encode(std::string_view text) const override {
    return encode(text, settings_.context_length);
  }
  std::int64_t count_ids(std::string_view text) const override { return std::ssize(encode(text, kAnyLength)); }

  std::string decode(const std::vector<std::int64_t>& ids) const override {
    std::string text;
    for (const std::int64_t id : ids) {
      if (id < 0 || id >= vocab_size()) user_error("wordpiece: id ", id, " is not in 0..", vocab_size() - 1);
      if (id == special_[end]) break;
      if (std::find(special_.begin(), special_.end(), id) != special_.end()) continue;
      const std::string& name = names_[static_cast<std::size_t>(id)];
      const bool continues = name.starts_with(continuation);
      if (!text.empty() && !continues) text += ' ';
      text += continues ? name.substr(continuation.size()) : name;
    }
    return text;
  }

  std::int64_t vocab_size() const override { return static_cast<std::int64_t>(names_.size()); }
  std::int64_t context_length() const override { return settings_.context_length; }
  std::int64_t pad_id() const override { return special_[pad]; }
  std::vector<std::int64_t> special_ids() const override {
    std::vector<std::int64_t> ids(special_.begin(), special_.end());
    std::sort(ids.begin(), ids.end());
    return ids;
  }
  std::string name() const override { return "wordpiece"; }
  const std::string& vocabulary_bytes() const override { return bytes_; }

 private:
  std::vector<std::int64_t> encode(std::string_view text, std::int64_t most) const {
    std::string repaired;
    if (!unicode::is_ascii(text) && !is_utf8(text)) {
      repaired = repair_utf8(text);
      text = repaired;
    }
    const auto limit = static_cast<std::size_t>(most - 1);
    std::vector<std::int64_t> ids;
    ids.reserve(std::min(limit, text.size() + 1) + 8);  // the last word may add some ids beyond the limit
    ids.push_back(special_[start]);
    while (!text.empty() && ids.size() < limit) {
      const Found found = find_special(text);
      encode_plain(text.substr(0, found.at), limit, ids);
      if (found.at == text.size()) break;
      ids.push_back(special_[found.which]);
      text.remove_prefix(found.at + special_names[found.which].size());
    }
    if (ids.size() > limit) ids.resize(limit);
    ids.push_back(special_[end]);
    return ids;
  }

  struct Found {
    std::size_t at;
    std::size_t which;
  };

  void read_pieces() {
    for (std::string& line : split_lines(bytes_)) {
      const auto id = static_cast<std::int32_t>(names_.size());
      first_.insert(line, id);
      if (line.starts_with(continuation)) later_.insert(std::string_view(line).substr(continuation.size()), id);
      names_.push_back(std::move(line));
    }
  }

  // Finds the first special token that appears in the text.
  static Found find_special(std::string_view text) {
    for (std::size_t at = text.find('['); at != std::string_view::npos; at = text.find('[', at + 1))
      for (std::size_t i = 0; i < special_names.size(); ++i)
        if (text.substr(at).starts_with(special_names[i])) return {at, i};
    return {text.size(), 0};
  }

  // Encodes text without special tokens.
  void encode_plain(std::string_view text, std::size_t limit, std::vector<std::int64_t>& ids) const {
    if (bert_text::is_plain(text))
      encode_ascii(text, limit, ids);
    else
      encode_cleaned(bert_text::clean(unicode::decode(text), settings_.lower_case), limit, ids);
  }

  // The fast path, which handles most captions. It does not decode code points, and copies the text at most once, in lower
  // case.
  void encode_ascii(std::string_view text, std::size_t limit, std::vector<std::int64_t>& ids) const {
    std::array<char, 1024> small;  // NOLINT: only the part that is read is filled
    std::string large;
    if (settings_.lower_case) {
      if (text.size() > small.size()) large.resize(text.size());
      char* const lower = large.empty() ? small.data() : large.data();
      std::transform(text.begin(), text.end(), lower,
                     [](char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c); });
      text = std::string_view(lower, text.size());
    }
    for (std::size_t i = 0; i < text.size() && ids.size() < limit;) {
      if (text[i] <= ' ') {
        ++i;
        continue;
      }
      const std::size_t word = i;
      i = bert_text::word_end(text, word);
      encode_word(text.substr(word, i - word), i - word, ids);
    }
  }

  void encode_cleaned(std::u32string_view clean, std::size_t limit, std::vector<std::int64_t>& ids) const {
    std::string bytes;
    for (std::size_t i = 0; i < clean.size() && ids.size() < limit;) {
      if (clean[i] == U' ') {
        ++i;
        continue;
      }
      const std::size_t word = i, end = bert_text::word_end(clean, word);
      bytes.clear();
      for (; i < end; ++i) unicode::append_utf8(bytes, clean[i]);
      encode_word(bytes, end - word, ids);
    }
  }

  // Takes the longest piece at each position, from left to right. The whole word becomes unknown if no piece fits at a
  // position, or if the word has too many characters.
  void encode_word(std::string_view word, std::size_t characters, std::vector<std::int64_t>& ids) const {
    constexpr std::size_t most_characters = 100;
    const std::size_t before = ids.size();
    for (std::size_t begin = 0; begin < word.size();) {
      const std::int32_t id = characters > most_characters ? WordTable::none : longest_piece(word, begin);
      if (id == WordTable::none) {
        ids.resize(before);
        ids.push_back(special_[unknown]);
        return;
      }
      ids.push_back(id);
    }
  }

  // Returns the id of the longest piece at `begin`, and moves `begin` after this piece.
  std::int32_t longest_piece(std::string_view word, std::size_t& begin) const {
    const WordTable& pieces = begin == 0 ? first_ : later_;
    for (std::size_t size = std::min(word.size() - begin, pieces.longest()); size > 0; --size) {
      const std::size_t end = begin + size;
      if (end < word.size() && (word[end] & 0xC0) == 0x80) continue;  // `end` is inside a character
      if (const std::int32_t id = pieces.find(word.substr(begin, size)); id != WordTable::none) {
        begin = end;
        return id;
      }
    }
    return WordTable::none;
  }

  WordPieceSettings settings_;
  std::string bytes_;
  std::vector<std::string> names_;
  WordTable first_;  // ids of all pieces, by name
  WordTable later_;  // ids of the ## pieces, by name without the ##
  std::array<std::int64_t, special_names.size()> special_{};
};

}  // namespace

std::shared_ptr<Tokenizer> make_wordpiece(const WordPieceSettings& settings, const TokenizerContext& context) {
  return std::make_shared<WordPiece>(settings, load_vocabulary("wordpiece", "vocab", settings.vocab, context));
}

}  // namespace tessera
