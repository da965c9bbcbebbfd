#include "src/data/tokenizers/json/pre_tokenizer.h"

#include <algorithm>
#include <string>
#include <vector>

#include "src/data/tokenizers/json/characters.h"
#include "src/data/tokenizers/json/part.h"
#include "src/data/tokenizers/json/pattern.h"
#include <tessera/base/error.h>

namespace tessera::json_tokenizer {
namespace {

// What a split does with the parts of a text that match its pattern.
enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

Behavior read_behavior(const Part& part, Behavior otherwise) {
  if (!part.has("behavior")) return otherwise;
  const std::string name = part.text("behavior");
  if (name == "Removed") return Behavior::removed;
  if (name == "Isolated") return Behavior::isolated;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  part.refuse("has the behavior " + shown(name) + ", which is not supported");
}

/// Appends the matches and the parts between matches, and joins or drops them as the behavior requires.
class Joiner {
 public:
  Joiner(const Piece& piece, Behavior behavior, std::vector<Piece>& out)
      : piece_(piece), behavior_(behavior), out_(out), first_(out.size()) {}

  void add(std::size_t begin, std::size_t end, bool match) {
    const bool first = out_.size() == first_;
    const bool joins = !first && ((behavior_ == Behavior::merged_with_previous && match && !before_) ||
                                  (behavior_ == Behavior::merged_with_next && before_ && !match) ||
                                  (behavior_ == Behavior::contiguous && match == before_));
    before_ = match;
    if (joins)
      out_.back().end = piece_.begin + end;
    else if (!(behavior_ == Behavior::removed && match))
      out_.push_back(piece_.part(begin, end));
  }

 private:
  const Piece& piece_;
  Behavior behavior_;
  std::vector<Piece>& out_;
  std::size_t first_;
  bool before_ = false;  // whether the previous part is a match
};

// Splits a piece and appends the result. `matches` are ranges of bytes in the piece, from left to right. With `invert`, the
// parts between these ranges count as the matches.
void append_split(const Piece& piece, const std::vector<Span>& matches, Behavior behavior, bool invert, std::vector<Piece>& out) {
  const std::size_t first = out.size(), size = piece.end - piece.begin;
  Joiner joiner(piece, behavior, out);
  std::size_t behind = 0;
  bool empty = false;
  for (const Span& span : matches) {
    if (span.begin > behind) joiner.add(behind, span.begin, invert);
    joiner.add(span.begin, span.end, !invert);
    empty |= span.begin == span.end;
    behind = span.end;
  }
  if (behind < size) joiner.add(behind, size, invert);
  if (empty) out.erase(std::remove_if(out.begin() + static_cast<std::ptrdiff_t>(first), out.end(), [](const Piece& p) { return p.begin == p.end; }), out.end());
}

/// A step that splits each piece by itself.
class PieceSplitter : public PreTokenizer {
 public:
  void split(Pieces& pieces, Pieces& spare) const final {
    spare.pieces.clear();
    for (const Piece& piece : pieces.pieces) split_piece(piece, pieces.of(piece), spare.pieces);
    pieces.pieces.swap(spare.pieces);
  }

 private:
  virtual void split_piece(const Piece& piece, std::string_view text, std::vector<Piece>& out) const = 0;
};

/// Splits at the matches of a pattern.
class Split : public PieceSplitter {
 public:
  Split(std::shared_ptr<const Pattern> pattern, Behavior behavior, bool invert) : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

 private:
  void split_piece(const Piece& piece, std::string_view text, std::vector<Piece>& out) const override {
    thread_local std::vector<Span> found;
    found.clear();
    pattern_->find(text, found);
    if (behavior_ == Behavior::removed && invert_)
      append_matches(piece, found, out);
    else
      append_split(piece, found, behavior_, invert_, out);
  }

  // Does what append_split() does if only the matches stay (CLIP), but faster.
  static void append_matches(const Piece& piece, const std::vector<Span>& matches, std::vector<Piece>& out) {
    std::size_t count = out.size();
    out.resize(count + matches.size());
    for (const Span& span : matches)
      if (span.begin < span.end) out[count++] = piece.part(span.begin, span.end);
    out.resize(count);
  }

  std::shared_ptr<const Pattern> pattern_;
  Behavior behavior_;
  bool invert_;
};

/// Splits at characters of some classes; each such character is a separate match.
class ClassSplit : public PieceSplitter {
 public:
  ClassSplit(std::uint16_t classes, Behavior behavior) : classes_(classes), behavior_(behavior) {}

 private:
  void split_piece(const Piece& piece, std::string_view text, std::vector<Piece>& out) const override {
    thread_local std::vector<Span> found;
    found.clear();
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t begin = at;
      if ((next_class(text, at) & classes_) != 0) found.push_back({begin, at});
    }
    append_split(piece, found, behavior_, /*invert=*/false, out);
  }

  std::uint16_t classes_;
  Behavior behavior_;
};

/// Splits into BERT's words. White space is dropped, and each punctuation character is a word of its own.
class Bert : public PieceSplitter {
  void split_piece(const Piece& piece, std::string_view text, std::vector<Piece>& out) const override {
    std::size_t word = 0;
    const auto end_word = [&](std::size_t end) {
      if (end > word) out.push_back(piece.part(word, end));
    };
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t begin = at;
      const std::uint16_t classes = next_class(text, at);
      if ((classes & (white_space | punctuation)) == 0) continue;
      end_word(begin);
      word = begin;
      if ((classes & white_space) == 0) end_word(at);
      word = at;
    }
    end_word(text.size());
  }
};

/// Splits into runs of word characters, and runs of characters that are neither word characters nor white space.
class Whitespace : public PieceSplitter {
  void split_piece(const Piece& piece, std::string_view text, std::vector<Piece>& out) const override {
    std::size_t begin = 0;
    std::uint16_t kind = white_space;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t from = at;
      const std::uint16_t here = kind_of(next_class(text, at));
      if (here == kind) continue;
      if (kind != white_space) out.push_back(piece.part(begin, from));
      begin = from;
      kind = here;
    }
    if (kind != white_space) out.push_back(piece.part(begin, text.size()));
  }

  static std::uint16_t kind_of(std::uint16_t classes) {
    if ((classes & word) != 0) return word;
    return classes & white_space;
  }
};

/// Splits into SentencePiece's words: replaces each space by a mark, adds a mark in front of the text, and splits before the
/// marks.
class Metaspace : public PreTokenizer {
 public:
  enum class Prepend { never, first, always };
  Metaspace(std::string mark, Prepend prepend, bool split) : mark_(std::move(mark)), prepend_(prepend), split_(split) {}

  void split(Pieces& pieces, Pieces& spare) const override {
    spare.text.clear();
    spare.pieces.clear();
    for (const Piece& piece : pieces.pieces) {
      const std::string_view text = pieces.of(piece);
      const std::size_t begin = spare.text.size();
      const bool wanted = prepend_ == Prepend::always || (prepend_ == Prepend::first && piece.head > 0);
      if (wanted && text[0] != ' ' && !text.starts_with(mark_)) spare.text += mark_;
      append_marked(text.substr(0, piece.head), spare.text);
      const std::size_t head = piece.head == 0 ? 0 : spare.text.size() - begin;
      append_marked(text.substr(std::min(piece.head, text.size())), spare.text);
      append_pieces({begin, spare.text.size(), head}, spare);
    }
    pieces.text.swap(spare.text);
    pieces.pieces.swap(spare.pieces);
  }

 private:
  void append_marked(std::string_view text, std::string& out) const {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t space = std::min(text.find(' ', at), text.size());
      out.append(text, at, space - at);
      if (space < text.size()) out += mark_;
      at = space + 1;
    }
  }

  void append_pieces(const Piece& piece, Pieces& out) const {
    if (!split_) {
      out.pieces.push_back(piece);
      return;
    }
    const std::string_view text = std::string_view(out.text).substr(piece.begin);
    std::size_t begin = 0;
    for (std::size_t at = text.find(mark_, 1); at != std::string_view::npos; at = text.find(mark_, at + 1)) {
      out.pieces.push_back(piece.part(begin, at));
      begin = at;
    }
    out.pieces.push_back(piece.part(begin, text.size()));
  }

  std::string mark_;
  Prepend prepend_;
  bool split_;
};

/// Adds a space in front of pieces that do not start with one.
class PrefixSpace : public PreTokenizer {
 public:
  void split(Pieces& pieces, Pieces& spare) const override {
    spare.text.clear();
    for (Piece& piece : pieces.pieces) {
      const std::string_view text = pieces.of(piece);
      piece.begin = spare.text.size();
      if (text[0] != ' ') {
        spare.text += ' ';
        piece.head += piece.head > 0 ? 1 : 0;
      }
      spare.text += text;
      piece.end = spare.text.size();
    }
    pieces.text.swap(spare.text);
  }
};

/// Replaces the bytes of the pieces by the characters of byte-level tokenizers.
class ByteCharacters : public PreTokenizer {
 public:
  void split(Pieces& pieces, Pieces& spare) const override {
    spare.text.clear();
    for (Piece& piece : pieces.pieces) {
      const std::string_view text = pieces.of(piece);
      piece.begin = spare.text.size();
      append_byte_characters(text.substr(0, piece.head), spare.text);
      const std::size_t head = spare.text.size() - piece.begin;
      append_byte_characters(text.substr(std::min(piece.head, text.size())), spare.text);
      piece.head = head;
      piece.end = spare.text.size();
    }
    pieces.text.swap(spare.text);
  }
};

class FixedLength : public PieceSplitter {
 public:
  explicit FixedLength(std::size_t length) : length_(length) {}

 private:
  void split_piece(const Piece& piece, std::string_view text, std::vector<Piece>& out) const override {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t begin = at;
      for (std::size_t i = 0; i < length_ && at < text.size(); ++i) next_code(text, at);
      out.push_back(piece.part(begin, at));
    }
  }

  std::size_t length_;
};

using Steps = std::vector<std::shared_ptr<const PreTokenizer>>;

class Sequence : public PreTokenizer {
 public:
  explicit Sequence(Steps parts) : parts_(std::move(parts)) {}
  void split(Pieces& pieces, Pieces& spare) const override {
    for (const auto& part : parts_) part->split(pieces, spare);
  }

 private:
  Steps parts_;
};

std::shared_ptr<const PreTokenizer> read_metaspace(const Part& part) {
  part.allow({"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  const std::string scheme = part.has("prepend_scheme") ? part.text("prepend_scheme") : "always";
  const bool prefix = part.flag("add_prefix_space", true);
  if (!prefix && part.has("prepend_scheme") && scheme != "never") part.refuse("has an add_prefix_space that contradicts its prepend_scheme");
  if (scheme != "always" && scheme != "first" && scheme != "never")
    part.refuse("has the prepend_scheme " + shown(scheme) + ", which is not supported");
  const auto prepend = !prefix || scheme == "never" ? Metaspace::Prepend::never
                       : scheme == "first"          ? Metaspace::Prepend::first
                                                    : Metaspace::Prepend::always;
  return std::make_shared<Metaspace>(part.character("replacement"), prepend, part.flag("split", true));
}

void add_byte_level(const Part& part, Steps& steps) {
  part.allow({"add_prefix_space", "trim_offsets", "use_regex"});
  if (part.flag("add_prefix_space", true)) steps.push_back(std::make_shared<PrefixSpace>());
  if (part.flag("use_regex", true))
    steps.push_back(std::make_shared<Split>(make_known_pattern(std::string(gpt2_pattern)), Behavior::isolated, false));
  steps.push_back(std::make_shared<ByteCharacters>());
}

std::shared_ptr<const PreTokenizer> read_fixed_length(const Part& part) {
  part.allow({"length"});
  const std::int64_t length = part.has("length") ? part.at("length").get<std::int64_t>() : 5;
  if (length < 1) part.refuse("has no length");
  return std::make_shared<FixedLength>(static_cast<std::size_t>(length));
}

std::shared_ptr<const PreTokenizer> read_splitter(const Part& part) {
  const std::string& type = part.type();
  if (type == "Split") {
    part.allow({"pattern", "behavior", "invert"});
    return std::make_shared<Split>(make_pattern(part.at("pattern"), part.origin()), read_behavior(part, Behavior::isolated), part.flag("invert", false));
  }
  if (type == "OpenClip") return std::make_shared<Split>(make_open_clip_pattern(), Behavior::removed, true);  // an extension for clip-bpe
  if (type == "CharDelimiterSplit") {
    part.allow({"delimiter"});
    return std::make_shared<Split>(make_text_pattern(part.character("delimiter")), Behavior::removed, false);
  }
  if (type == "Punctuation") {
    part.allow({"behavior"});
    return std::make_shared<ClassSplit>(punctuation, read_behavior(part, Behavior::isolated));
  }
  if (type == "Digits") {
    part.allow({"individual_digits"});
    return std::make_shared<ClassSplit>(numeric, part.flag("individual_digits", false) ? Behavior::isolated : Behavior::contiguous);
  }
  if (type == "Metaspace") return read_metaspace(part);
  if (type == "FixedLength") return read_fixed_length(part);
  if (type != "BertPreTokenizer" && type != "Whitespace" && type != "WhitespaceSplit") part.unknown();
  part.allow({});
  if (type == "BertPreTokenizer") return std::make_shared<Bert>();
  if (type == "Whitespace") return std::make_shared<Whitespace>();
  return std::make_shared<ClassSplit>(white_space, Behavior::removed);
}

void add_steps(const nlohmann::json& json, const std::string& origin, int depth, Steps& steps) {
  constexpr int deepest = 16;
  const Part part(json, "pre_tokenizer", origin);
  if (part.type() == "Sequence") {
    part.allow({"pretokenizers"});
    if (depth == deepest) part.refuse("is nested too deeply");
    for (const nlohmann::json& each : part.at("pretokenizers")) add_steps(each, origin, depth + 1, steps);
  } else if (part.type() == "ByteLevel") {
    add_byte_level(part, steps);
  } else {
    steps.push_back(read_splitter(part));
  }
}

}  // namespace

Splitting make_pre_tokenizer(const nlohmann::json& json, bool may_be_bytes, const std::string& origin) {
  Steps steps;
  if (!json.is_null()) add_steps(json, origin, 0, steps);
  // If the last step converts bytes to characters and the model can read bytes, this step is left out.
  const bool bytes = may_be_bytes && !steps.empty() && dynamic_cast<const ByteCharacters*>(steps.back().get()) != nullptr;
  if (bytes) steps.pop_back();
  return {std::make_shared<Sequence>(std::move(steps)), bytes};
}

}  // namespace tessera::json_tokenizer
