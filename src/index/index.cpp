#include <algorithm>
#include <cmath>
#include <exception>
#include <filesystem>
#include <limits>
#include <numeric>
#include <unordered_map>

#include "kernels/parallel.h"
#include "src/base/digest.h"
#include "src/base/printable.h"
#include "src/index/index.h"
#include <tessera/base/error.h>
#include <tessera/io/atomic_file.h>

namespace tessera::index {
namespace {

TokenNames read_names(const std::string& folder, const Manifest& manifest) {
  if (manifest.vocabulary.empty()) return {};
  const std::string path = folder + "/" + manifest.vocabulary;
  const std::string text = io::read_file(path);
  if (fingerprint(text) != manifest.vocabulary_fingerprint) user_error(path, ": damaged: it does not match its fingerprint");
  return {text, path};
}

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

std::vector<OpenSegment> open_segments(const std::string& folder, const Manifest& manifest, int threads,
                                       SegmentParts parts) {
  std::vector<OpenSegment> segments;
  std::int64_t first = 0;
  for (const ManifestSegment& each : manifest.segments) {
    segments.push_back({std::make_unique<Segment>(folder, each.record, manifest.layout, threads, parts), each, first});
    first += each.record.documents;
  }
  return segments;
}

TokenNames names_of(const std::string& folder) {
  return read_names(folder, read_manifest(folder));
}

Index::Index(const std::string& folder, int threads) {
  for (;;) {
    manifest_ = read_manifest(folder);
    try {
      names_ = read_names(folder, manifest_);
      segments_ = open_segments(folder, manifest_, threads);
      return;
    } catch (const UserError&) {
      // If the manifest has not changed since it was read, rethrows the error. If it has changed, a writer may have removed files that the
      // old manifest names, so the loop opens the new state.
      if (manifest_text(manifest_) == manifest_text(read_manifest(folder))) throw;
    }
  }
}

std::int64_t Index::documents() const {
  std::int64_t count = document_numbers();
  for (const OpenSegment& each : segments_) count -= each.manifest.removed_count();
  return count;
}

std::int64_t Index::document_numbers() const {
  return segments_.empty() ? 0 : segments_.back().first + segments_.back().segment->documents();
}

std::string_view Index::id(std::int64_t document) const {
  const auto after = std::ranges::upper_bound(segments_, document, {}, &OpenSegment::first);
  return std::prev(after)->segment->id(document - std::prev(after)->first);
}

std::vector<std::int64_t> Index::find(std::span<const std::string> ids) const {
  std::unordered_map<std::string_view, std::int64_t> numbers;
  for (const std::string& wanted : ids) numbers.emplace(wanted, -1);
  for (const OpenSegment& each : segments_) {
    for (std::int64_t d = 0; d < each.segment->documents(); ++d) {
      const auto found = numbers.find(each.segment->id(d));
      if (found != numbers.end() && !each.manifest.is_removed(d)) found->second = each.first + d;
    }
  }
  std::vector<std::int64_t> out;
  for (const std::string& wanted : ids) {
    out.push_back(numbers.at(wanted));
    if (out.back() < 0) user_error("there is no document ", printable(wanted, 100), " in the index");
  }
  return out;
}

std::int64_t Index::postings() const {
  std::int64_t count = 0;
  for (const OpenSegment& each : segments_) count += each.segment->postings();
  return count;
}

std::int64_t Index::file_bytes() const {
  std::int64_t bytes = 0;
  for (const OpenSegment& each : segments_) bytes += each.manifest.record.bytes;
  return bytes;
}

SparseVectors Index::stored_vectors() const {
  const QuantizedDocuments documents = stored_documents(segments_, manifest_.layout);
  const double unit = quantization().largest_weight / static_cast<double>(quantization().largest_impact());
  SparseVectors out{vocab_size(), documents.indptr, documents.tokens, {}, documents.ids};
  for (const std::uint16_t impact : documents.impacts) out.weights.push_back(static_cast<float>(impact * unit));
  return out;
}

QuantizedQuery quantize_query(std::span<const std::int32_t> tokens, std::span<const float> weights,
                              const Quantization& quantization) {
  constexpr double kSteps = 255;
  constexpr double kLargestSum = std::numeric_limits<std::uint32_t>::max();
  QuantizedQuery query;
  double largest = 0, squares = 0;
  for (const float weight : weights) {
    largest = std::max<double>(largest, weight);
    squares += static_cast<double>(weight) * weight;
  }
  if (!(largest > 0)) return query;
  // The sum of the rounded weights has a limit. Rounding can increase each weight by up to half a quantization step. `room` is the
  // resulting limit on the sum before rounding, in quantization steps.
  double sum = 0;
  for (const float weight : weights) sum += weight / largest;
  const double room =
      kLargestSum / static_cast<double>(quantization.largest_impact()) - 0.5 * static_cast<double>(weights.size());
  const double steps = std::max(1.0, std::min(kSteps, std::floor(room / sum)));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto weight = static_cast<std::uint32_t>(std::lround(weights[i] / largest * steps));
    if (weight == 0) continue;
    query.tokens.push_back(tokens[i]);
    query.weights.push_back(weight);
  }
  query.unit = largest / steps;
  if (quantization.unit_length) query.unit /= std::sqrt(squares);
  return query;
}

std::vector<Hits> search_all(const Index& index, const SparseVectors& queries, std::int64_t k, const Filter& filter,
                             int threads) {
  std::vector<Hits> hits(static_cast<std::size_t>(queries.rows()));
  std::vector<std::exception_ptr> errors(hits.size());
  kernels::for_each_item({threads}, queries.rows(), [&](int, std::int64_t q) {
    try {
      const QuantizedQuery query = quantize_query(queries.tokens_of(q), queries.weights_of(q), index.quantization());
      hits[q] = index.search(query, k, filter);
    } catch (...) {
      errors[q] = std::current_exception();
    }
  });
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  return hits;
}

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
