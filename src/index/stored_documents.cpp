#include <numeric>

#include "src/index/index_state.h"

namespace tessera::index {
namespace {

/// Calls visit(document, token, impact) for all postings of a segment, window by window and token by token.
template <class Impact, class Visit>
void for_each_weight(const Segment& segment, std::int64_t vocab_size, Visit&& visit) {
  for (const Window& window : segment.windows())
    for (std::int32_t token = 0; token < vocab_size; ++token)
      if (const TermEntry* term = window.find(token))
        window.for_each_posting<Impact>(
            *term, [&](std::uint16_t document, Impact impact) { visit(window.first + document, token, impact); });
}

template <class Visit>
void for_each_weight(const OpenSegment& each, const SegmentLayout& layout, Visit&& visit) {
  if (layout.impact_bits == 8)
    for_each_weight<std::uint8_t>(*each.segment, layout.vocab_size, visit);
  else
    for_each_weight<std::uint16_t>(*each.segment, layout.vocab_size, visit);
}

}  // namespace

QuantizedDocuments stored_documents(const std::vector<OpenSegment>& segments, const SegmentLayout& layout) {
  QuantizedDocuments out;
  std::vector<std::int64_t> row_of;  // for each document number, the row of the document in `out`; -1 if the document is removed
  for (const OpenSegment& each : segments) {
    for (std::int64_t d = 0; d < each.segment->documents(); ++d) {
      row_of.push_back(each.manifest.is_removed(d) ? -1 : out.rows());
      if (row_of.back() >= 0) out.ids.emplace_back(each.segment->id(d));
    }
  }
  out.indptr.assign(static_cast<std::size_t>(out.rows()) + 1, 0);
  for (const OpenSegment& each : segments)
    for_each_weight(each, layout, [&](std::int64_t document, std::int32_t, std::uint16_t) {
      if (const std::int64_t row = row_of[each.first + document]; row >= 0) ++out.indptr[row + 1];
    });
  std::partial_sum(out.indptr.begin(), out.indptr.end(), out.indptr.begin());
  out.tokens.resize(static_cast<std::size_t>(out.indptr.back()));
  out.impacts.resize(out.tokens.size());
  std::vector<std::int64_t> next = out.indptr;
  for (const OpenSegment& each : segments)
    for_each_weight(each, layout, [&](std::int64_t document, std::int32_t token, std::uint16_t impact) {
      const std::int64_t row = row_of[each.first + document];
      if (row < 0) return;
      out.tokens[next[row]] = token;
      out.impacts[next[row]++] = impact;
    });
  return out;
}

}  // namespace tessera::index
