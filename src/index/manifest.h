#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/index/segment.h"
#include <tessera/index/index.h>

namespace tessera::index {

/// A segment with the documents that were removed from it since.
struct ManifestSegment {
  SegmentRecord record;
  std::vector<std::uint64_t> removed;  // a bit for each document; empty: none was

  bool is_removed(std::int64_t document) const {
    return !removed.empty() && (removed[document / 64] >> (document % 64) & 1) != 0;
  }
  /// Marks a document; false if it was removed already.
  bool remove(std::int64_t document);
  std::int64_t removed_count() const;
};

/// The one file that says what an index consists of. Renaming it is what changes an index.
struct Manifest {
  SegmentLayout layout;
  Quantization quantization;     // its bits are the layout's
  std::int64_t next_number = 1;  // of the next file's name
  std::string vocabulary;        // file with the tokens' names, or empty
  std::uint64_t vocabulary_fingerprint = 0;
  std::vector<ManifestSegment> segments;
};

/// Whether a folder has a manifest.
bool has_manifest(const std::string& folder);

/// Throws UserError: there is no index in the folder, or its manifest is damaged or of another version.
Manifest read_manifest(const std::string& folder);

/// Replaces the manifest; the index changes at this moment.
void write_manifest(const std::string& folder, const Manifest& manifest);

/// The same as text: JSON in one line, and a line with its fingerprint.
std::string manifest_text(const Manifest& manifest);
Manifest parse_manifest(const std::string& text, const std::string& path);

}  // namespace tessera::index
