#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <tessera/data/source.h>

namespace tessera {

/// Identifies a data set independently of where it is stored, so moving or copying its files does not change the fingerprint. It is cheap
/// to compute even for millions of files, because the digests cover only an evenly spread sample of the files; the counts are exact. A
/// change outside the sample (a caption of the same length in the middle of a large table) is not noticed.
struct DataFingerprint {
  std::int64_t samples = 0;
  std::int64_t files = 0;
  std::string names;    // digest of the file names within the data set; covers at most 100,000 files
  std::string sizes;    // digest of the file sizes; covers at most 4,096 files
  // digest of the first 16 files and at most 48 others; from each file, it covers 4 KiB at the start and 4 KiB in the middle, and from a
  // remote file its ETag
  std::string content;

  bool operator==(const DataFingerprint&) const = default;
};

/// Returns the fingerprint of a source that is a single data set, not a mixture (Source::mixing).
DataFingerprint compute_fingerprint(const Source& source);

/// The fingerprints of a source's components, keyed by the components' labels.
using DataFingerprints = std::map<std::string, DataFingerprint>;
DataFingerprints compute_fingerprints(const Source& source);

std::string to_json(const DataFingerprints& fingerprints);
/// Parses the text that to_json() returns. Returns an empty map if the text is malformed.
DataFingerprints fingerprints_from_json(const std::string& text);

/// Describes the first difference between the data sets `there` and `here`, such as "1,243 files there, 1,244 here". Returns an empty text
/// if they do not differ.
std::string first_difference(const DataFingerprints& there, const DataFingerprints& here);

}  // namespace tessera
