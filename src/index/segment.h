#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/io/mapped_file.h"

/// A segment file holds documents that were added together. It never changes after it is written. It is little-endian, and every section
/// begins at a multiple of 64 bytes.
///
///   8 bytes   kSegmentMagic
///   sections  one for the ids, then one for each window of documents
///   table     a SectionEntry for each section
///   trailer   SegmentTrailer
///
/// The section of the ids is u64 start [documents + 1], followed by the bytes of the ids. If T of the V terms occur in a window, the
/// window's section is
///   u64 term bits [ceil(V / 64)]   which terms occur
///   u32 ranks [ceil(V / 64)]       number of terms before each word of bits; padded to 8 bytes
///   TermEntry [T]                  where the postings of each term are
///   postings, each at a multiple of 8 bytes, with at least kImpactPadding bytes of zeros after the last
/// The postings of a term begin with the documents, either as a list, u16 documents [count], or as bits, u64 [ceil(documents / 64)]. Then
/// follow the impacts [count] of 1 or 2 bytes (kernels/impact_scores/impact_scores.h). Terms in at least an eighth of the documents use
/// bits, which then take less space and time.
namespace tessera::index {

constexpr std::array<char, 8> kSegmentMagic = {'T', 'S', 'S', 'E', 'G', 'M', 'N', 'T'};
constexpr std::uint32_t kSegmentVersion = 1;
constexpr std::int64_t kSectionAlignment = 64;
constexpr std::int64_t kLargestWindow = 65'536;

struct SectionEntry {
  std::uint64_t offset, bytes, fingerprint;
};

enum class PostingForm : std::uint16_t { kList = 0, kBits = 1 };

struct TermEntry {
  std::uint64_t offset;  // from the beginning of the section
  std::uint32_t count;
  std::uint16_t largest_impact;
  PostingForm form;
};

struct SegmentTrailer {
  std::uint64_t vocab_size, documents, window, postings, sections, file_bytes;
  std::uint32_t version, impact_bits;
  std::uint64_t fingerprint;  // fingerprint of the table and of this struct, in which this member counts as 0
  std::array<char, 8> magic;
};

/// A segment's entry in the manifest. The fingerprint reveals if another file is in the segment's place.
struct SegmentRecord {
  std::string file;
  std::int64_t documents = 0;
  std::int64_t bytes = 0;
  std::uint64_t fingerprint = 0;  // the fingerprint in the trailer
};

/// The sizes that are equal in all segments of an index.
struct SegmentLayout {
  std::int64_t vocab_size = 0;
  std::int64_t window = 0;
  int impact_bits = 8;
};

/// One window of an opened segment. The pointers point into the mapped file.
struct Window {
  std::int64_t first = 0;      // index of its first document in the segment
  std::int64_t documents = 0;  // at least 1
  std::string_view section;
  const std::uint64_t* term_bits = nullptr;
  const std::uint32_t* ranks = nullptr;
  const TermEntry* terms = nullptr;
  std::int64_t term_count = 0;

  std::int64_t words() const { return (documents + 63) / 64; }
  /// Returns the entry of a term; null if no document of the window has the term.
  const TermEntry* find(std::int32_t token) const {
    const std::uint64_t word = term_bits[token / 64], bit = std::uint64_t{1} << (token % 64);
    if ((word & bit) == 0) return nullptr;
    return terms + ranks[token / 64] + __builtin_popcountll(word & (bit - 1));
  }
  const std::uint16_t* list_of(const TermEntry& term) const {
    return reinterpret_cast<const std::uint16_t*>(section.data() + term.offset);
  }
  const std::uint64_t* bits_of(const TermEntry& term) const {
    return reinterpret_cast<const std::uint64_t*>(section.data() + term.offset);
  }
  /// Returns the size in bytes of a term's list or bits of documents.
  std::uint64_t document_bytes(const TermEntry& term) const {
    return term.form == PostingForm::kBits ? 8 * static_cast<std::uint64_t>(words()) : 2 * std::uint64_t{term.count};
  }
  template <class Impact>
  const Impact* impacts_of(const TermEntry& term) const {
    return reinterpret_cast<const Impact*>(section.data() + term.offset + document_bytes(term));
  }
  /// Calls visit(document, impact) for a term's postings in order. `document` is the document's index within the window.
  template <class Impact, class Visit>
  void for_each_posting(const TermEntry& term, Visit&& visit) const {
    const Impact* impacts = impacts_of<Impact>(term);
    if (term.form == PostingForm::kList) {
      for (std::uint32_t i = 0; i < term.count; ++i) visit(list_of(term)[i], impacts[i]);
      return;
    }
    for (std::int64_t w = 0; w < words(); ++w)
      for (std::uint64_t rest = bits_of(term)[w]; rest != 0; rest &= rest - 1)
        visit(static_cast<std::uint16_t>(64 * w + __builtin_ctzll(rest)), *impacts++);
  }
};

/// The parts of a segment to open. A search for ids does not need the postings.
enum class SegmentParts { kAll, kIds };

/// A segment that is open for reading. All its opened parts have been checked.
class Segment {
 public:
  /// Throws a UserError that names the file if the file is damaged or invalid, or is not the segment that the record describes.
  Segment(const std::string& folder, const SegmentRecord& record, const SegmentLayout& layout, int threads,
          SegmentParts parts = SegmentParts::kAll);

  std::int64_t documents() const { return documents_; }
  std::int64_t postings() const { return postings_; }
  std::string_view id(std::int64_t document) const;
  /// Returns the windows. There are none if only ids were opened.
  const std::vector<Window>& windows() const { return windows_; }

 private:
  std::string path_;
  io::MappedFile file_;
  std::int64_t documents_ = 0, postings_ = 0;
  const std::uint64_t* id_starts_ = nullptr;
  const char* id_bytes_ = nullptr;
  std::vector<Window> windows_;
};

/// Documents in the form that a segment stores. Impacts are at least 1.
struct QuantizedDocuments {
  std::vector<std::int64_t> indptr = {0};
  std::vector<std::int32_t> tokens;
  std::vector<std::uint16_t> impacts;
  std::vector<std::string> ids;

  std::int64_t rows() const { return static_cast<std::int64_t>(ids.size()); }
};

/// Writes a segment file atomically.
SegmentRecord write_segment(const std::string& folder, const std::string& file, const QuantizedDocuments& documents,
                            const SegmentLayout& layout, int threads);

/// Returns the fingerprint of the table and the trailer together.
std::uint64_t segment_fingerprint(const std::vector<SectionEntry>& table, SegmentTrailer trailer);

}  // namespace tessera::index
