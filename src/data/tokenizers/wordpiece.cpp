#include <algorithm>
#include <array>
#include <unordered_map>

#include "src/data/tokenizers/bert_text.h"
#include "src/data/tokenizers/unicode.h"
#include "src/data/tokenizers/vocabulary_file.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/data/tokenizers/wordpiece.h>

namespace tessera {
namespace {

enum Special : std::size_t { pad, unknown, start, end, mask };
constexpr std::array<std::string_view, 5> special_names = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
constexpr std::string_view continuation = "##";

struct Hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using Pieces = std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>>;

class WordPiece : public Tokenizer {
 public:
  WordPiece(const WordPieceSettings& settings, Vocabulary vocabulary)
      : settings_(settings), bytes_(std::move(vocabulary.bytes)) {
    read_pieces();
    for (std::size_t i = 0; i < special_names.size(); ++i) {
      const auto found = first_.find(special_names[i]);
      if (found == first_.end())
        user_error(vocabulary.origin, ": has no ", special_names[i], " among its ", names_.size(),
                   " lines; expected BERT's vocab.txt, one piece a line");
      special_[i] = found->second;
    }
  }

  std::vector<std::int64_t> encode(std::string_view text) const override {
    std::string repaired;
    if (!is_utf8(text)) {
      repaired = repair_utf8(text);
      text = repaired;
    }
    std::vector<std::int64_t> ids{special_[start]};
    const auto limit = static_cast<std::size_t>(settings_.max_length - 1);
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
  std::int64_t context_length() const override { return settings_.max_length; }
  std::int64_t pad_id() const override { return special_[pad]; }
  std::string name() const override { return "wordpiece"; }
  const std::string& vocabulary_bytes() const override { return bytes_; }

 private:
  struct Found {
    std::size_t at;
    std::size_t which;
  };

  void read_pieces() {
    std::vector<std::string> lines = split(bytes_, '\n');
    if (lines.back().empty()) lines.pop_back();
    for (std::string& line : lines) {
      if (line.ends_with('\r')) line.pop_back();
      const auto id = static_cast<std::int64_t>(names_.size());
      first_.insert_or_assign(line, id);  // of equal lines the last counts
      if (line.starts_with(continuation)) later_.insert_or_assign(line.substr(continuation.size()), id);
      longest_ = std::max(longest_, line.size());
      names_.push_back(std::move(line));
    }
  }

  // The first special token written in the text.
  static Found find_special(std::string_view text) {
    for (std::size_t at = text.find('['); at != std::string_view::npos; at = text.find('[', at + 1))
      for (std::size_t i = 0; i < special_names.size(); ++i)
        if (text.substr(at).starts_with(special_names[i])) return {at, i};
    return {text.size(), 0};
  }

  void encode_plain(std::string_view text, std::size_t limit, std::vector<std::int64_t>& ids) const {
    constexpr std::size_t longest_word = 100;
    std::string bytes;
    for (const std::u32string& word : bert_text::words(unicode::decode(text), settings_.lower_case)) {
      if (ids.size() >= limit) return;
      bytes.clear();
      for (const char32_t code : word) unicode::append_utf8(bytes, code);
      if (word.size() > longest_word)
        ids.push_back(special_[unknown]);
      else
        encode_word(bytes, ids);
    }
  }

  // Longest piece first, from the left; the whole word is unknown if any part is.
  void encode_word(std::string_view word, std::vector<std::int64_t>& ids) const {
    const std::size_t before = ids.size();
    for (std::size_t begin = 0; begin < word.size();) {
      const Pieces& pieces = begin == 0 ? first_ : later_;
      std::size_t size = std::min(word.size() - begin, longest_);
      auto found = pieces.end();
      for (; size > 0; --size) {
        found = pieces.find(word.substr(begin, size));
        if (found != pieces.end()) break;
      }
      if (size == 0) {
        ids.resize(before);
        ids.push_back(special_[unknown]);
        return;
      }
      ids.push_back(found->second);
      begin += size;
    }
  }

  WordPieceSettings settings_;
  std::string bytes_;
  std::vector<std::string> names_;
  Pieces first_;  // by name
  Pieces later_;  // by name without ##
  std::size_t longest_ = 0;
  std::array<std::int64_t, special_names.size()> special_{};
};

}  // namespace

std::shared_ptr<Tokenizer> make_wordpiece(const WordPieceSettings& settings, const TokenizerContext& context) {
  return std::make_shared<WordPiece>(settings, load_vocabulary("wordpiece", "vocab", settings.vocab, context));
}

}  // namespace tessera
