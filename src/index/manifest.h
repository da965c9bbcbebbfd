#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/index/segment.h"

namespace tessera::index {

/// How weights are converted to whole numbers, called impacts: impact = round(weight / largest_weight * (2^impact_bits - 1)). Weights above
/// largest_weight are clipped to it; weights that round to 0 are left out.
struct Quantization {
  int impact_bits = 8;        // 8 or 16
  double largest_weight = 0;  // weights of this size get the impact 2^impact_bits - 1
  bool unit_length = false;   // scale documents and queries to length 1 first, so that scores are cosines

  std::int64_t largest_impact() const { return (std::int64_t{1} << impact_bits) - 1; }
};

/// A segment and the documents that were removed from it.
struct ManifestSegment {
  SegmentRecord record;
  std::vector<std::uint64_t> removed;  // one bit per document; empty if none was removed

  bool is_removed(std::int64_t document) const {
    return !removed.empty() && (removed[document / 64] >> (document % 64) & 1) != 0;
  }
  /// Marks a document as removed; returns false if it already was.
  bool remove(std::int64_t document);
  std::int64_t removed_count() const;
};

/// The contents of the file that lists the parts of an index. A change of the index takes effect when a new file replaces this one by
/// renaming.
struct Manifest {
  SegmentLayout layout;
  Quantization quantization;     // how weights become impacts; quantization.impact_bits equals layout.impact_bits
  std::int64_t next_number = 1;  // the number in the name of the next file
  std::string vocabulary;        // file with the token names; empty if tokens have no names
  std::uint64_t vocabulary_fingerprint = 0;
  std::vector<ManifestSegment> segments;
};

/// Whether a folder has a manifest.
bool has_manifest(const std::string& folder);

/// Throws UserError if there is no index in the folder.
void require_manifest(const std::string& folder);

/// Throws UserError if there is no index in the folder, or its manifest is damaged or has another version.
Manifest read_manifest(const std::string& folder);

/// Replaces the manifest, and with it the state of the index.
void write_manifest(const std::string& folder, const Manifest& manifest);

/// Returns the text of the manifest file: one line of JSON, and one line with its fingerprint.
std::string manifest_text(const Manifest& manifest);
Manifest parse_manifest(const std::string& text, const std::string& path);

/// An opened segment and its entry in the manifest.
struct OpenSegment {
  std::unique_ptr<const Segment> segment;
  ManifestSegment manifest;
  std::int64_t first = 0;  // the segment's first document number in the index
};

/// Opens all segments. Throws the same UserErrors as the constructor of Segment.
std::vector<OpenSegment> open_segments(const std::string& folder, const Manifest& manifest, int threads,
                                       SegmentParts parts = SegmentParts::kAll);

/// Returns all documents that are not removed, in their order.
QuantizedDocuments stored_documents(const std::vector<OpenSegment>& segments, const SegmentLayout& layout);

}  // namespace tessera::index
