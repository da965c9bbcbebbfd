#include "src/data/tokenizers/json/split_behavior.h"

#include <algorithm>

namespace tessera::json_tokenizer {

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

namespace {

/// Joins matches and the parts between them according to a behavior.
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

}  // namespace

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

}  // namespace tessera::json_tokenizer
