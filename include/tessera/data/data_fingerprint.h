#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <tessera/data/source.h>

namespace tessera {

/// What tells a data set from another, wherever it lies: it is the same after its files were moved or copied. Cheap for
/// millions of files: all numbers are exact, the rest is a sample, whose files are spread evenly. A change that none of it
/// sees (a caption in the middle of a large table, of the same length) is not noticed.
struct DataFingerprint {
  std::int64_t samples = 0;
  std::int64_t files = 0;
  std::string names;    // digest of the names within the data set, of at most 100,000 files
  std::string sizes;    // of the sizes in bytes, of at most 4,096 files
  std::string content;  // of 4 KiB at the begin and 4 KiB in the middle, of the first 16 files and at most 48 others

  bool operator==(const DataFingerprint&) const = default;
};

/// Of a source without components (Source::mixing).
DataFingerprint fingerprint_of(const Source& source);

/// Those of the source's components, by their labels.
using DataFingerprints = std::map<std::string, DataFingerprint>;
DataFingerprints fingerprints_of(const Source& source);

std::string to_json(const DataFingerprints& fingerprints);
/// Empty for a text that is none.
DataFingerprints fingerprints_from_json(const std::string& text);

/// The first thing in which the data differ ("1,243 files there, 1,244 here"), or an empty text.
std::string first_difference(const DataFingerprints& there, const DataFingerprints& here);

}  // namespace tessera
