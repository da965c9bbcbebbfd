#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "kernels/impact_scores/impact_scores.h"
#include "kernels/parallel.h"
#include "src/base/digest.h"
#include "src/index/segment.h"
#include <tessera/io/atomic_file.h>

namespace tessera::index {
namespace {

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// The bytes of a section that is being written. New bytes are 0.
class Bytes {
 public:
  std::int64_t size() const { return static_cast<std::int64_t>(bytes_.size()); }
  void align(std::int64_t multiple) { bytes_.resize(static_cast<std::size_t>(round_up(size(), multiple))); }
  /// Appends room for `count` values. Invalidates all earlier pointers into the section.
  template <class T>
  T* extend(std::int64_t count) {
    const std::size_t begin = bytes_.size();
    bytes_.resize(begin + static_cast<std::size_t>(count) * sizeof(T));
    return reinterpret_cast<T*>(bytes_.data() + begin);
  }
  template <class T>
  T* at(std::int64_t offset) {
    return reinterpret_cast<T*>(bytes_.data() + offset);
  }
  std::string take() { return std::move(bytes_); }
  void reserve(std::int64_t bytes) { bytes_.reserve(static_cast<std::size_t>(bytes)); }

 private:
  std::string bytes_;
};

std::string ids_section(const std::vector<std::string>& ids) {
  Bytes section;
  auto* const starts = section.extend<std::uint64_t>(static_cast<std::int64_t>(ids.size()) + 1);
  for (std::size_t i = 0; i < ids.size(); ++i) starts[i + 1] = starts[i] + ids[i].size();
  std::string bytes = section.take();
  for (const std::string& id : ids) bytes += id;
  return bytes;
}

struct WindowPosting {
  std::uint16_t document;
  std::uint16_t impact;
};

template <class Impact>
void put_postings(Bytes& section, TermEntry& entry, std::span<const WindowPosting> postings, std::int64_t documents) {
  section.align(8);
  entry.offset = static_cast<std::uint64_t>(section.size());
  entry.count = static_cast<std::uint32_t>(postings.size());
  entry.form = 8 * entry.count >= documents ? PostingForm::kBits : PostingForm::kList;
  if (entry.form == PostingForm::kBits) {
    auto* const bits = section.extend<std::uint64_t>((documents + 63) / 64);
    for (const WindowPosting& posting : postings)
      bits[posting.document / 64] |= std::uint64_t{1} << (posting.document % 64);
  } else {
    auto* const list = section.extend<std::uint16_t>(entry.count);
    for (std::size_t i = 0; i < postings.size(); ++i) list[i] = postings[i].document;
  }
  auto* const impacts = section.extend<Impact>(entry.count);
  for (std::size_t i = 0; i < postings.size(); ++i) {
    impacts[i] = static_cast<Impact>(postings[i].impact);
    entry.largest_impact = std::max(entry.largest_impact, postings[i].impact);
  }
}

std::string window_section(const QuantizedDocuments& documents, std::int64_t begin, std::int64_t end,
                           const SegmentLayout& layout) {
  const std::int64_t first = documents.indptr[begin], last = documents.indptr[end];
  // Sorts the postings by term. The documents of a term stay in order.
  std::vector<std::int64_t> start(static_cast<std::size_t>(layout.vocab_size) + 1, 0);
  for (std::int64_t i = first; i < last; ++i) ++start[static_cast<std::size_t>(documents.tokens[i]) + 1];
  for (std::int64_t t = 0; t < layout.vocab_size; ++t) start[t + 1] += start[t];
  std::vector<std::int64_t> next(start.begin(), start.end() - 1);
  std::vector<WindowPosting> postings(static_cast<std::size_t>(last - first));
  for (std::int64_t row = begin; row < end; ++row)
    for (std::int64_t i = documents.indptr[row]; i < documents.indptr[row + 1]; ++i)
      postings[next[documents.tokens[i]]++] = {static_cast<std::uint16_t>(row - begin), documents.impacts[i]};

  const std::int64_t words = (layout.vocab_size + 63) / 64;
  Bytes section;
  section.reserve(12 * words + 4 * (last - first) + (1 << 20));
  auto* const term_bits = section.extend<std::uint64_t>(words);
  for (std::int64_t t = 0; t < layout.vocab_size; ++t)
    if (start[t + 1] > start[t]) term_bits[t / 64] |= std::uint64_t{1} << (t % 64);
  section.extend<std::uint32_t>(words);
  std::uint32_t terms = 0;
  for (std::int64_t w = 0; w < words; ++w) {
    section.at<std::uint32_t>(8 * words)[w] = terms;
    terms += static_cast<std::uint32_t>(__builtin_popcountll(section.at<std::uint64_t>(0)[w]));
  }
  section.align(8);
  const std::int64_t entries = section.size();
  section.extend<TermEntry>(terms);
  std::int64_t rank = 0;
  for (std::int64_t t = 0; t < layout.vocab_size; ++t) {
    const std::span<const WindowPosting> of_term(postings.data() + start[t], postings.data() + start[t + 1]);
    if (of_term.empty()) continue;
    TermEntry entry{};
    if (layout.impact_bits == 8)
      put_postings<std::uint8_t>(section, entry, of_term, end - begin);
    else
      put_postings<std::uint16_t>(section, entry, of_term, end - begin);
    section.at<TermEntry>(entries)[rank++] = entry;
  }
  section.extend<char>(kernels::kImpactPadding);
  return section.take();
}

/// Writes a segment file section by section.
class SegmentFile {
 public:
  explicit SegmentFile(const std::string& path) : file_(path) { write(kSegmentMagic.data(), kSegmentMagic.size()); }

  void add_section(const std::string& section) {
    pad();
    table_.push_back({static_cast<std::uint64_t>(place_), section.size(), fingerprint(section)});
    write(section.data(), section.size());
  }

  SegmentTrailer finish(SegmentTrailer trailer) {
    pad();
    write(table_.data(), table_.size() * sizeof(SectionEntry));
    trailer.sections = table_.size();
    trailer.file_bytes = static_cast<std::uint64_t>(place_) + sizeof(trailer);
    trailer.version = kSegmentVersion;
    trailer.magic = kSegmentMagic;
    trailer.fingerprint = segment_fingerprint(table_, trailer);
    write(&trailer, sizeof(trailer));
    file_.commit();
    return trailer;
  }

 private:
  void write(const void* data, std::size_t size) {
    file_.write(data, size);
    place_ += static_cast<std::int64_t>(size);
  }
  void pad() {
    static constexpr std::array<char, kSectionAlignment> zeros{};
    write(zeros.data(), static_cast<std::size_t>(round_up(place_, kSectionAlignment) - place_));
  }

  io::AtomicFile file_;
  std::int64_t place_ = 0;
  std::vector<SectionEntry> table_;
};

}  // namespace

std::uint64_t segment_fingerprint(const std::vector<SectionEntry>& table, SegmentTrailer trailer) {
  trailer.fingerprint = 0;
  const std::string_view entries(reinterpret_cast<const char*>(table.data()), table.size() * sizeof(SectionEntry));
  return fingerprint({reinterpret_cast<const char*>(&trailer), sizeof(trailer)}, fingerprint(entries));
}

SegmentRecord write_segment(const std::string& folder, const std::string& file, const QuantizedDocuments& documents,
                            const SegmentLayout& layout, int threads) {
  SegmentFile out(folder + "/" + file);
  out.add_section(ids_section(documents.ids));
  const std::int64_t windows = round_up(documents.rows(), layout.window) / layout.window;
  const kernels::Parallel parallel{threads};
  const std::int64_t at_once = kernels::thread_count(parallel, windows);
  for (std::int64_t begin = 0; begin < windows; begin += at_once) {
    std::vector<std::string> sections(static_cast<std::size_t>(std::min(at_once, windows - begin)));
    kernels::for_each_item(parallel, static_cast<std::int64_t>(sections.size()), [&](int, std::int64_t i) {
      const std::int64_t first = (begin + i) * layout.window;
      sections[i] = window_section(documents, first, std::min(first + layout.window, documents.rows()), layout);
    });
    for (std::string& section : sections) out.add_section(std::exchange(section, {}));
  }
  SegmentTrailer trailer{};
  trailer.vocab_size = static_cast<std::uint64_t>(layout.vocab_size);
  trailer.documents = static_cast<std::uint64_t>(documents.rows());
  trailer.window = static_cast<std::uint64_t>(layout.window);
  trailer.postings = documents.tokens.size();
  trailer.impact_bits = static_cast<std::uint32_t>(layout.impact_bits);
  trailer = out.finish(trailer);
  return {file, documents.rows(), static_cast<std::int64_t>(trailer.file_bytes), trailer.fingerprint};
}

}  // namespace tessera::index
