// Exact search, window by window. A window is a range of documents whose scores fit into the cache. The impacts of one term after another
// are added to the scores (term at a time, as in SINDI: Li et al. 2025). A heap holds the k best documents so far. The bound of a term is
// the most that it can add to the score of a document of the window. Bounds save work without changing the result (MaxScore: Turtle and
// Flood 1995):
//   - If the sum of all bounds is at most the k-th best score, the window is skipped.
//   - If the bounds of some terms sum to at most the k-th best score, a document with no other terms cannot be among the best. The most
//     expensive of these terms are deferred. After the other terms have been added, only the documents that can still be among the best are
//     looked up in the postings of the deferred terms.
#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "kernels/impact_scores/impact_scores.h"
#include "src/index/index.h"
#include <tessera/base/error.h>

namespace tessera::index {
namespace {

/// The number of documents whose scores are read at a time. The k-th best score is updated after each such piece.
constexpr std::int64_t kPiece = 1024;

/// The costs of two steps of a search. The unit is the cost of adding one impact from a list to the score of its document.
constexpr double kCostOfBitsWord = 12;  // cost of adding the impacts of the documents in one 64-bit word of a bitmap
constexpr double kCostOfLookUp = 20;    // cost of looking up one document in the postings of one term

/// Whether a comes before b in the results.
bool better(const Hit& a, const Hit& b) {
  return a.product != b.product ? a.product > b.product : a.document < b.document;
}

/// Keeps the k best hits. Documents must be pushed in the order of their numbers.
class Best {
 public:
  explicit Best(std::int64_t k) : k_(static_cast<std::size_t>(k)) {}

  /// Returns the smallest product that another document needs to enter the k best.
  std::uint64_t least() const { return heap_.size() < k_ ? 1 : heap_.front().product + 1; }
  void push(std::int64_t document, std::uint64_t product) {
    if (product < least()) return;
    if (heap_.size() == k_) {
      std::pop_heap(heap_.begin(), heap_.end(), better);
      heap_.pop_back();
    }
    heap_.push_back({document, product, 0});
    std::push_heap(heap_.begin(), heap_.end(), better);
  }
  std::vector<Hit> take() {
    std::sort(heap_.begin(), heap_.end(), better);
    return std::move(heap_);
  }

 private:
  std::size_t k_;
  std::vector<Hit> heap_;  // a heap with the worst hit at the front
};

/// A term of the query and its postings in a window.
struct QueryTerm {
  const TermEntry* postings;
  std::uint32_t weight;
  std::uint64_t bound;  // the most that the term can add to the score of a document
  double cost;
};

/// A set of documents of a window, with one bit for each document.
using Bits = std::array<std::uint64_t, kLargestWindow / 64>;

struct Candidate {
  std::uint16_t document;
  std::uint32_t product;
};

/// Working memory of a thread. Between searches, all scores are 0.
struct Scratch {
  alignas(64) std::array<std::uint32_t, kLargestWindow> scores{};
  alignas(64) Bits allowed, other;
  std::array<std::uint16_t, kPiece> documents;
  std::array<std::uint32_t, kPiece> taken;
  std::vector<QueryTerm> terms;
  std::vector<Candidate> candidates;
};

Scratch& scratch() {
  static thread_local const std::unique_ptr<Scratch> own = std::make_unique<Scratch>();
  return *own;
}

void mark(const Window& window, std::int32_t token, Bits& bits) {
  const TermEntry* const term = window.find(token);
  if (term == nullptr) return;
  if (term->form == PostingForm::kBits) {
    for (std::int64_t w = 0; w < window.words(); ++w) bits[w] |= window.bits_of(*term)[w];
  } else {
    for (std::uint32_t i = 0; i < term->count; ++i)
      bits[window.list_of(*term)[i] / 64] |= std::uint64_t{1} << (window.list_of(*term)[i] % 64);
  }
}

template <class Impact>
class SegmentSearch {
 public:
  SegmentSearch(const OpenSegment& segment, const QuantizedQuery& query, const Filter& filter, Best& best)
      : segment_(segment), query_(query), filter_(filter), best_(best) {}

  /// Returns the number of windows that were skipped.
  std::int64_t run() {
    std::int64_t skipped = 0;
    for (const Window& window : segment_.segment->windows()) skipped += search(window) ? 0 : 1;
    return skipped;
  }

 private:
  bool search(const Window& window) {
    find_terms(window);
    std::uint64_t bound = 0;
    for (const QueryTerm& term : own_.terms) bound += term.bound;
    if (bound < best_.least()) return false;
    filtered_ = allow(window);
    const std::size_t first_deferred = defer();
    for (std::size_t i = 0; i < first_deferred; ++i) add(window, own_.terms[i]);
    if (first_deferred < own_.terms.size() && look_up(window, first_deferred)) return true;
    for (std::size_t i = first_deferred; i < own_.terms.size(); ++i) add(window, own_.terms[i]);
    take(window);
    return true;
  }

  void find_terms(const Window& window) {
    own_.terms.clear();
    for (std::size_t i = 0; i < query_.tokens.size(); ++i) {
      const TermEntry* const term = window.find(query_.tokens[i]);
      if (term == nullptr) continue;
      const double cost =
          term->form == PostingForm::kBits ? kCostOfBitsWord * static_cast<double>(window.words()) : term->count;
      own_.terms.push_back({term, query_.weights[i], std::uint64_t{term->largest_impact} * query_.weights[i], cost});
    }
  }

  /// Sets the bits of the documents that the filter allows. Returns false, and sets no bits, if the filter allows all documents.
  bool allow(const Window& window) {
    const std::vector<std::uint64_t>& removed = segment_.manifest.removed;
    if (removed.empty() && filter_.must.empty() && filter_.must_not.empty() && filter_.should.empty() && !filter_.only_documents)
      return false;
    Bits& other = own_.other;
    const std::int64_t words = window.words();
    const auto each_word = [&](auto&& change) {
      for (std::int64_t w = 0; w < words; ++w) change(own_.allowed[w], w);
    };
    const auto clear_other = [&] { std::fill_n(other.begin(), words, std::uint64_t{0}); };
    const auto keep_other = [&] { each_word([&](std::uint64_t& allowed, std::int64_t w) { allowed &= other[w]; }); };
    each_word([&](std::uint64_t& allowed, std::int64_t w) { allowed = ~(removed.empty() ? 0 : removed[window.first / 64 + w]); });
    for (const std::int32_t token : filter_.must) {
      clear_other();
      mark(window, token, other);
      keep_other();
    }
    for (const std::int32_t token : filter_.must_not) {
      clear_other();
      mark(window, token, other);
      each_word([&](std::uint64_t& allowed, std::int64_t w) { allowed &= ~other[w]; });
    }
    if (!filter_.should.empty()) {
      clear_other();
      for (const std::int32_t token : filter_.should) mark(window, token, other);
      keep_other();
    }
    if (filter_.only_documents) {
      clear_other();
      const std::int64_t first = segment_.first + window.first;
      auto each = std::lower_bound(filter_.documents.begin(), filter_.documents.end(), first);
      for (; each != filter_.documents.end() && *each < first + window.documents; ++each)
        other[(*each - first) / 64] |= std::uint64_t{1} << ((*each - first) % 64);
      keep_other();
    }
    return true;
  }

  bool allowed(std::uint16_t document) const {
    return !filtered_ || (own_.allowed[document / 64] >> (document % 64) & 1) != 0;
  }

  /// Chooses the terms to defer, moves them to the end, and returns the index of the first deferred term. Prefers terms with the highest
  /// cost relative to their bounds. The sum of the deferred terms' bounds stays well below the k-th best dot product found so far.
  std::size_t defer() {
    // Terms are deferred as long as the sum of their bounds is at most this share of the k-th best score. A larger share defers more terms,
    // but more documents must be looked up.
    constexpr double kShare = 0.8;
    std::vector<QueryTerm>& terms = own_.terms;
    const double room = kShare * static_cast<double>(best_.least() - 1);
    if (room <= 0) return terms.size();
    std::sort(terms.begin(), terms.end(), [](const QueryTerm& a, const QueryTerm& b) {
      return a.cost * static_cast<double>(b.bound) < b.cost * static_cast<double>(a.bound);
    });
    deferred_bound_ = 0;
    std::size_t kept = terms.size();
    while (kept > 0 && static_cast<double>(deferred_bound_ + terms[kept - 1].bound) <= room)
      deferred_bound_ += terms[--kept].bound;
    return kept;
  }

  void add(const Window& window, const QueryTerm& term) {
    const Impact* const impacts = window.impacts_of<Impact>(*term.postings);
    const std::uint16_t* const list = window.list_of(*term.postings);
    const std::uint64_t* const bits = window.bits_of(*term.postings);
    const bool is_list = term.postings->form == PostingForm::kList;
    std::uint32_t* const scores = own_.scores.data();
    if constexpr (sizeof(Impact) == 1) {
      if (is_list)
        kernels_.add_list_8(list, impacts, term.postings->count, term.weight, scores);
      else
        kernels_.add_bitmap_8(bits, window.words(), impacts, term.weight, scores);
    } else {
      if (is_list)
        kernels_.add_list_16(list, impacts, term.postings->count, term.weight, scores);
      else
        kernels_.add_bitmap_16(bits, window.words(), impacts, term.weight, scores);
    }
  }

  /// If it is cheaper to add the deferred terms to the scores of all documents, does nothing and returns false. Otherwise looks up the
  /// candidates (the documents that can still enter the k best) in the postings of the deferred terms, pushes the candidates with a large
  /// enough dot product to `best_`, resets the scores to 0, and returns true.
  bool look_up(const Window& window, std::size_t first) {
    const std::uint64_t least = best_.least() - deferred_bound_;
    const std::int64_t count = 64 * window.words();
    const auto found =
        static_cast<double>(kernels_.count_at_least(own_.scores.data(), count, static_cast<std::uint32_t>(least)));
    double cost = 0;
    for (std::size_t i = first; i < own_.terms.size(); ++i) cost += own_.terms[i].cost;
    if (found * kCostOfLookUp * static_cast<double>(own_.terms.size() - first) > cost) return false;

    std::vector<Candidate>& candidates = own_.candidates;
    candidates.clear();
    for_each_taken(
        window, [&] { return least; },
        [&](std::uint16_t document, std::uint32_t product) {
          candidates.push_back({document, product});
        });
    std::uint64_t rest = deferred_bound_;
    for (std::size_t i = first; i < own_.terms.size() && !candidates.empty(); ++i) {
      add_to_candidates(window, own_.terms[i]);
      rest -= own_.terms[i].bound;
      std::erase_if(candidates, [&](const Candidate& each) { return each.product + rest < best_.least(); });
    }
    for (const Candidate& each : candidates) best_.push(segment_.first + window.first + each.document, each.product);
    return true;
  }

  void add_to_candidates(const Window& window, const QueryTerm& term) {
    const TermEntry& postings = *term.postings;
    const Impact* const impacts = window.impacts_of<Impact>(postings);
    if (postings.form == PostingForm::kList) {
      const std::uint16_t* const begin = window.list_of(postings);
      const std::uint16_t* const end = begin + postings.count;
      const std::uint16_t* at = begin;
      for (Candidate& each : own_.candidates) {
        at = std::lower_bound(at, end, each.document);
        if (at == end) return;
        if (*at == each.document) each.product += impacts[at - begin] * term.weight;
      }
      return;
    }
    const std::uint64_t* const bits = window.bits_of(postings);
    std::int64_t word = 0, before = 0;  // `before` is the number of 1 bits in bits[0] to bits[word - 1]
    for (Candidate& each : own_.candidates) {
      for (; word < each.document / 64; ++word) before += __builtin_popcountll(bits[word]);
      const std::uint64_t bit = std::uint64_t{1} << (each.document % 64);
      if ((bits[word] & bit) != 0)
        each.product += impacts[before + __builtin_popcountll(bits[word] & (bit - 1))] * term.weight;
    }
  }

  /// Visits the allowed documents whose score is at least `least()`. Calls `least` once per piece of kPiece scores. Resets all scores to 0.
  template <class Least, class Visit>
  void for_each_taken(const Window& window, Least&& least, Visit&& visit) {
    for (std::int64_t begin = 0; begin < window.documents; begin += kPiece) {
      const std::int64_t count = std::min(kPiece, 64 * window.words() - begin);
      // Products are at most 2^32 - 1, but the bound may be larger. The kernel gets a clamped bound and may take too many documents, so the
      // exact check below is needed.
      const std::uint64_t bound = least();
      const auto cut =
          static_cast<std::uint32_t>(std::min<std::uint64_t>(bound, std::numeric_limits<std::uint32_t>::max()));
      const std::int64_t found =
          kernels_.take_at_least(own_.scores.data() + begin, count, cut, own_.documents.data(), own_.taken.data());
      for (std::int64_t i = 0; i < found; ++i) {
        const auto document = static_cast<std::uint16_t>(begin + own_.documents[i]);
        if (own_.taken[i] >= bound && allowed(document)) visit(document, own_.taken[i]);
      }
    }
  }

  void take(const Window& window) {
    for_each_taken(
        window, [&] { return best_.least(); },
        [&](std::uint16_t document, std::uint32_t product) {
          best_.push(segment_.first + window.first + document, product);
        });
  }

  const OpenSegment& segment_;
  const QuantizedQuery& query_;
  const Filter& filter_;
  Best& best_;
  const kernels::ImpactScoreKernels& kernels_ = kernels::impact_score_kernels();
  Scratch& own_ = scratch();
  std::uint64_t deferred_bound_ = 0;
  bool filtered_ = false;
};

}  // namespace

Hits Index::search(const QuantizedQuery& query, std::int64_t k, const Filter& filter) const {
  if (k < 1) user_error("k = ", k, ": expected at least 1");
  for (const auto* tokens : {&query.tokens, &filter.must, &filter.must_not, &filter.should})
    for (const std::int32_t token : *tokens)
      if (token < 0 || token >= vocab_size())
        user_error("token ", token, " is outside the index's vocabulary of ", vocab_size());
  Hits hits;
  Best best(k);
  for (const OpenSegment& segment : segments_) {
    hits.windows_skipped += quantization().impact_bits == 8
                                ? SegmentSearch<std::uint8_t>(segment, query, filter, best).run()
                                : SegmentSearch<std::uint16_t>(segment, query, filter, best).run();
  }
  hits.best = best.take();
  const double unit = query.unit * quantization().largest_weight / static_cast<double>(quantization().largest_impact());
  for (Hit& hit : hits.best) hit.score = static_cast<float>(static_cast<double>(hit.product) * unit);
  return hits;
}

}  // namespace tessera::index
