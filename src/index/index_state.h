#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/index/index.h"
#include "src/index/manifest.h"
#include "src/index/segment.h"

namespace tessera::index {

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

struct Index::State {
  Manifest manifest;
  TokenNames names;
  std::vector<OpenSegment> segments;

  /// Returns the segment that contains the document with this number.
  const OpenSegment& of(std::int64_t document) const;
};

}  // namespace tessera::index
