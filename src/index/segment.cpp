#include "src/index/segment.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>

#include "kernels/impact_scores/impact_scores.h"
#include "kernels/parallel.h"
#include "src/base/digest.h"
#include "src/index/sparse_vectors.h"
#include <tessera/base/error.h>

namespace tessera::index {
namespace {

/// A description of what is wrong with a file, or nullopt if nothing is wrong. The caller adds the file's name.
using Fault = std::optional<std::string>;

template <class Impact>
bool sound_impacts(const Impact* impacts, std::uint32_t count, std::uint16_t largest) {
  Impact least = impacts[0], most = impacts[0];
  for (std::uint32_t i = 1; i < count; ++i) {
    least = std::min(least, impacts[i]);
    most = std::max(most, impacts[i]);
  }
  return least >= 1 && most == largest;
}

bool sound_list(const std::uint16_t* documents, std::uint32_t count, std::int64_t window_documents) {
  bool rising = true;
  for (std::uint32_t i = 1; i < count; ++i) rising &= documents[i - 1] < documents[i];
  return rising && documents[count - 1] < window_documents;
}

bool sound_bits(const std::uint64_t* bits, std::uint32_t count, const Window& window) {
  std::uint64_t set = 0;
  for (std::int64_t w = 0; w < window.words(); ++w) set += static_cast<std::uint64_t>(__builtin_popcountll(bits[w]));
  const std::int64_t used = window.documents % 64;
  return set == count && (used == 0 || bits[window.words() - 1] >> used == 0);
}

bool sound_term(const Window& window, const TermEntry& term, int impact_bits) {
  if (term.count < 1 || term.count > window.documents || term.offset % 8 != 0) return false;
  if (term.form != PostingForm::kList && term.form != PostingForm::kBits) return false;
  const std::uint64_t impact_bytes = static_cast<std::uint64_t>(impact_bits / 8) * term.count;
  const std::uint64_t bytes = window.document_bytes(term) + impact_bytes + kernels::kImpactPadding;
  if (term.offset > window.section.size() || bytes > window.section.size() - term.offset) return false;
  const bool places_sound = term.form == PostingForm::kBits
                                ? sound_bits(window.bits_of(term), term.count, window)
                                : sound_list(window.list_of(term), term.count, window.documents);
  if (!places_sound) return false;
  return impact_bits == 8 ? sound_impacts(window.impacts_of<std::uint8_t>(term), term.count, term.largest_impact)
                          : sound_impacts(window.impacts_of<std::uint16_t>(term), term.count, term.largest_impact);
}

/// Finds the parts of a window's section and checks them. Returns the number of postings; nullopt if the section is invalid.
std::optional<std::int64_t> open_window(Window& window, const SegmentLayout& layout) {
  const std::int64_t words = (layout.vocab_size + 63) / 64;
  const std::int64_t entries = (12 * words + 7) / 8 * 8;
  const auto bytes = static_cast<std::int64_t>(window.section.size());
  if (bytes < entries) return std::nullopt;
  const char* const begin = window.section.data();
  window.term_bits = reinterpret_cast<const std::uint64_t*>(begin);
  window.ranks = reinterpret_cast<const std::uint32_t*>(begin + 8 * words);
  window.terms = reinterpret_cast<const TermEntry*>(begin + entries);
  for (std::int64_t w = 0; w < words; ++w) {
    if (window.ranks[w] != window.term_count) return std::nullopt;
    window.term_count += __builtin_popcountll(window.term_bits[w]);
  }
  const std::int64_t used = layout.vocab_size % 64;
  if (used != 0 && window.term_bits[words - 1] >> used != 0) return std::nullopt;
  if (bytes - entries < window.term_count * static_cast<std::int64_t>(sizeof(TermEntry))) return std::nullopt;
  std::int64_t postings = 0;
  for (std::int64_t t = 0; t < window.term_count; ++t) {
    if (!sound_term(window, window.terms[t], layout.impact_bits)) return std::nullopt;
    postings += window.terms[t].count;
  }
  return postings;
}

Fault check_trailer(const SegmentTrailer& trailer, const SegmentRecord& record, const SegmentLayout& layout,
                    std::uint64_t bytes) {
  if (trailer.magic != kSegmentMagic) return "is not a segment of an index";
  if (trailer.version != kSegmentVersion)
    return concat("has version ", trailer.version, " of the format; this program reads version ", kSegmentVersion);
  const auto windows = static_cast<std::uint64_t>((record.documents + layout.window - 1) / layout.window);
  const bool same = trailer.fingerprint == record.fingerprint && trailer.file_bytes == bytes &&
                    trailer.documents == static_cast<std::uint64_t>(record.documents) &&
                    trailer.vocab_size == static_cast<std::uint64_t>(layout.vocab_size) &&
                    trailer.window == static_cast<std::uint64_t>(layout.window) &&
                    trailer.impact_bits == static_cast<std::uint32_t>(layout.impact_bits) &&
                    trailer.sections == windows + 1;
  return same ? Fault() : "is not the segment that the manifest names, or damaged";
}

/// Returns the table of sections; nullopt if the table or a section is not within the file, or if a section is
/// misaligned or begins before the previous one ends.
std::optional<std::vector<SectionEntry>> read_table(std::string_view bytes, const SegmentTrailer& trailer) {
  const std::uint64_t table_bytes = trailer.sections * sizeof(SectionEntry);
  const std::uint64_t before = sizeof(kSegmentMagic) + sizeof(SegmentTrailer);
  if (bytes.size() < before || trailer.sections > bytes.size() || table_bytes > bytes.size() - before)
    return std::nullopt;
  const std::uint64_t end = bytes.size() - sizeof(SegmentTrailer) - table_bytes;
  std::vector<SectionEntry> table(trailer.sections);
  std::memcpy(table.data(), bytes.data() + end, table_bytes);
  std::uint64_t place = sizeof(kSegmentMagic);
  for (const SectionEntry& section : table) {
    if (section.offset % kSectionAlignment != 0 || section.offset < place || section.offset > end ||
        section.bytes > end - section.offset)
      return std::nullopt;
    place = section.offset + section.bytes;
  }
  return table;
}

}  // namespace

Segment::Segment(const std::string& folder, const SegmentRecord& record, const SegmentLayout& layout, int threads,
                 SegmentParts parts)
    : path_(folder + "/" + record.file), file_(path_), documents_(record.documents) {
  const std::string_view bytes = file_.bytes();
  SegmentTrailer trailer{};
  if (bytes.size() < sizeof(kSegmentMagic) + sizeof(trailer) || static_cast<std::int64_t>(bytes.size()) != record.bytes)
    user_error(path_, ": is ", bytes.size(), " bytes long, expected ", record.bytes);
  std::memcpy(&trailer, bytes.data() + bytes.size() - sizeof(trailer), sizeof(trailer));
  if (const Fault fault = check_trailer(trailer, record, layout, bytes.size())) user_error(path_, ": ", *fault);
  const auto table = read_table(bytes, trailer);
  if (!table || segment_fingerprint(*table, trailer) != trailer.fingerprint ||
      !std::equal(kSegmentMagic.begin(), kSegmentMagic.end(), bytes.begin()))
    user_error(path_, ": damaged: its table of sections does not match its fingerprint");

  const std::int64_t opened = parts == SegmentParts::kAll ? static_cast<std::int64_t>(table->size()) : 1;
  windows_.resize(opened - 1);
  std::vector<std::int64_t> postings(table->size(), 0);
  std::vector<Fault> faults(table->size());
  kernels::for_each_item({threads}, opened, [&](int, std::int64_t s) {
    const SectionEntry& entry = (*table)[s];
    const std::string_view section = bytes.substr(entry.offset, entry.bytes);
    if (fingerprint(section) != entry.fingerprint) {
      faults[s] = concat("damaged: section ", s, " does not match its fingerprint");
    } else if (s > 0) {
      Window& window = windows_[s - 1];
      window.first = (s - 1) * layout.window;
      window.documents = std::min(layout.window, documents_ - window.first);
      window.section = section;
      if (const auto found = open_window(window, layout))
        postings[s] = *found;
      else
        faults[s] = concat("damaged: the postings of window ", s - 1, " are invalid");
    }
  });
  for (const Fault& fault : faults)
    if (fault) user_error(path_, ": ", *fault);
  for (const std::int64_t count : postings) postings_ += count;

  const std::string_view ids = bytes.substr(table->front().offset, table->front().bytes);
  const std::uint64_t starts = 8 * (static_cast<std::uint64_t>(documents_) + 1);
  id_starts_ = reinterpret_cast<const std::uint64_t*>(ids.data());
  id_bytes_ = ids.data() + starts;
  const bool sound = ids.size() >= starts && id_starts_[0] == 0 &&
                     std::is_sorted(id_starts_, id_starts_ + documents_ + 1) &&
                     id_starts_[documents_] == ids.size() - starts && is_readable(ids.substr(starts));
  const bool complete = parts == SegmentParts::kIds || postings_ == static_cast<std::int64_t>(trailer.postings);
  if (!sound || !complete)
    user_error(path_, ": damaged: the ids of its documents or its number of postings are invalid");
}

std::string_view Segment::id(std::int64_t document) const {
  return {id_bytes_ + id_starts_[document], id_starts_[document + 1] - id_starts_[document]};
}

}  // namespace tessera::index
