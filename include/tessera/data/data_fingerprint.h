#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <tessera/data/source.h>

namespace tessera {

/// Identifies a data set independently of where it is stored: moving or copying its files does not change the fingerprint.
/// Cheap for millions of files: the counts are exact, and the digests cover an evenly spread sample of the files. A change
/// outside the sample (a caption of the same length in the middle of a large table) is not noticed.
struct DataFingerprint {
  std::int64_t samples = 0;
  std::int64_t files = 0;
  std::string names;    // digest of the file names within the data set, of at most 100,000 files
  std::string sizes;    // digest of the sizes in bytes, of at most 4,096 files
  std::string content;  // digest of the first 4 KiB and 4 KiB in the middle, of the first 16 files and at most 48 others

  bool operator==(const DataFingerprint&) const = default;
};

/// Returns the fingerprint of a source without components (Source::mixing).
DataFingerprint fingerprint_of(const Source& source);

/// Fingerprints of a source's components, by label.
using DataFingerprints = std::map<std::string, DataFingerprint>;
DataFingerprints fingerprints_of(const Source& source);

std::string to_json(const DataFingerprints& fingerprints);
/// Parses to_json's text; returns an empty map if it is malformed.
DataFingerprints fingerprints_from_json(const std::string& text);

/// Returns the first difference between the data ("1,243 files there, 1,244 here"), or an empty text.
std::string first_difference(const DataFingerprints& there, const DataFingerprints& here);

}  // namespace tessera
