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

Behavior read_behavior(const Part& part) {
  const std::string name = part.text("behavior", "Isolated");
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

/// Returns a step that splits each piece by itself. split(piece, text, out) appends what a piece is split into.
template <class Split>
PreTokenizer each_piece(Split split) {
  return [split](Pieces& pieces, Pieces& spare) {
    spare.pieces.clear();
    for (const Piece& piece : pieces.pieces) split(piece, pieces.of(piece), spare.pieces);
    pieces.pieces.swap(spare.pieces);
  };
}

// Does what append_split() does if only the matches stay (CLIP), but faster.
void append_matches(const Piece& piece, const std::vector<Span>& matches, std::vector<Piece>& out) {
  std::size_t count = out.size();
  out.resize(count + matches.size());
  for (const Span& span : matches)
    if (span.begin < span.end) out[count++] = piece.part(span.begin, span.end);
  out.resize(count);
}

/// Returns a step that splits at the matches of a pattern.
PreTokenizer split_at(const Pattern& pattern, Behavior behavior, bool invert = false) {
  return each_piece([=](const Piece& piece, std::string_view text, std::vector<Piece>& out) {
    thread_local std::vector<Span> found;
    found.clear();
    pattern(text, found);
    if (behavior == Behavior::removed && invert)
      append_matches(piece, found, out);
    else
      append_split(piece, found, behavior, invert, out);
  });
}

// Splits into BERT's words. White space is dropped, and each punctuation character is a word of its own.
void append_bert_words(const Piece& piece, std::string_view text, std::vector<Piece>& out) {
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

// Splits into runs of word characters, and runs of characters that are neither word characters nor white space.
void append_words(const Piece& piece, std::string_view text, std::vector<Piece>& out) {
  std::size_t begin = 0;
  std::uint16_t kind = white_space;
  const auto end_run = [&](std::size_t end) {
    if (kind != white_space) out.push_back(piece.part(begin, end));
    begin = end;
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t from = at;
    const std::uint16_t classes = next_class(text, at) & (word | white_space);
    const std::uint16_t here = (classes & word) != 0 ? std::uint16_t{word} : classes;
    if (here != kind) end_run(from);
    kind = here;
  }
  end_run(text.size());
}

/// Splits into SentencePiece's words: replaces each space by a mark, adds a mark in front of the text, and splits before the
/// marks.
class Metaspace {
 public:
  enum class Prepend { never, first, always };
  Metaspace(std::string mark, Prepend prepend, bool split) : mark_(std::move(mark)), prepend_(prepend), split_(split) {}

  void operator()(Pieces& pieces, Pieces& spare) const {
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

// Adds a space in front of pieces that do not start with one.
void add_prefix_space(Pieces& pieces, Pieces& spare) {
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

// Replaces the bytes of the pieces by the characters of byte-level tokenizers.
void write_bytes(Pieces& pieces, Pieces& spare) {
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

using Steps = std::vector<PreTokenizer>;

void add_metaspace(const Part& part, Steps& out) {
  const std::string scheme = part.text("prepend_scheme", "always");
  const bool prefix = part.flag("add_prefix_space", true);
  if (!prefix && part.has("prepend_scheme") && scheme != "never") part.refuse("has an add_prefix_space that contradicts its prepend_scheme");
  if (scheme != "always" && scheme != "first" && scheme != "never")
    part.refuse("has the prepend_scheme " + shown(scheme) + ", which is not supported");
  const auto prepend = !prefix || scheme == "never" ? Metaspace::Prepend::never
                       : scheme == "first"          ? Metaspace::Prepend::first
                                                    : Metaspace::Prepend::always;
  const std::string mark = part.character("replacement");
  out.emplace_back(Metaspace(mark, prepend, part.flag("split", true)));
}

void add_byte_level(const Part& part, Steps& out) {
  if (part.flag("add_prefix_space", true)) out.emplace_back(add_prefix_space);
  if (part.flag("use_regex", true)) out.push_back(split_at(make_known_pattern(std::string(gpt2_pattern)), Behavior::isolated));
  out.emplace_back(write_bytes);
}

void add_fixed_length(const Part& part, Steps& out) {
  const std::int64_t length = part.has("length") ? part.at("length").get<std::int64_t>() : 5;
  if (length < 1) part.refuse("has no length");
  out.push_back(split_at(make_length_pattern(static_cast<std::size_t>(length)), Behavior::isolated));
}

void add_split(const Part& part, Steps& out) {
  const Pattern pattern = make_pattern(part.at("pattern"), part.origin());
  const Behavior behavior = read_behavior(part);
  out.push_back(split_at(pattern, behavior, part.flag("invert", false)));
}

const std::vector<PartType<Steps>>& types() {
  static const std::vector<PartType<Steps>> list = {
      {"Split", {"pattern", "behavior", "invert"}, add_split},
      // an extension for clip-bpe
      {"OpenClip", {}, [](const Part&, Steps& out) { out.push_back(split_at(make_open_clip_pattern(), Behavior::removed, true)); }},
      {"CharDelimiterSplit", {"delimiter"},
       [](const Part& part, Steps& out) { out.push_back(split_at(make_text_pattern(part.character("delimiter")), Behavior::removed)); }},
      {"Punctuation", {"behavior"},
       [](const Part& part, Steps& out) { out.push_back(split_at(make_class_pattern(punctuation), read_behavior(part))); }},
      {"Digits", {"individual_digits"},
       [](const Part& part, Steps& out) {
         const bool single = part.flag("individual_digits", false);
         out.push_back(split_at(make_class_pattern(numeric), single ? Behavior::isolated : Behavior::contiguous));
       }},
      {"Metaspace", {"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"}, add_metaspace},
      {"FixedLength", {"length"}, add_fixed_length},
      {"ByteLevel", {"add_prefix_space", "trim_offsets", "use_regex"}, add_byte_level},
      {"BertPreTokenizer", {}, [](const Part&, Steps& out) { out.push_back(each_piece(append_bert_words)); }},
      {"Whitespace", {}, [](const Part&, Steps& out) { out.push_back(each_piece(append_words)); }},
      {"WhitespaceSplit", {},
       [](const Part&, Steps& out) { out.push_back(split_at(make_class_pattern(white_space), Behavior::removed)); }}};
  return list;
}

}  // namespace

Splitting make_pre_tokenizer(const nlohmann::json& json, bool may_be_bytes, const std::string& origin) {
  Steps steps;
  if (!json.is_null()) read_part(json, "pre_tokenizer", "pretokenizers", types(), origin, steps);
  // If the last step converts bytes to characters and the model can read bytes, this step is left out.
  const auto* last = steps.empty() ? nullptr : steps.back().target<decltype(&write_bytes)>();
  const bool bytes = may_be_bytes && last != nullptr && *last == write_bytes;
  if (bytes) steps.pop_back();
  return {[steps](Pieces& pieces, Pieces& spare) {
            for (const PreTokenizer& step : steps) step(pieces, spare);
          },
          bytes};
}

}  // namespace tessera::json_tokenizer
