#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <tessera/data/source.h>

namespace tessera {

/// A second base class for an IndexedSource of which several samples may have the same image: lists with one row per caption.
class ImageIds {
 public:
  virtual ~ImageIds() = default;
  /// Returns a number for each sample that is equal for samples that name the same image file, or 0 if nothing is known about the sample.
  /// Empty if nothing is known about any sample. Reads images only if their names do not suffice.
  virtual std::vector<std::uint64_t> image_ids() const = 0;
};

/// Returns what ImageIds::image_ids() returns; empty for other sources.
std::vector<std::uint64_t> image_ids_of(const Source& source);

/// A second base class for a source that joins several rows to one sample.
class MergedRows {
 public:
  virtual ~MergedRows() = default;
  /// Returns the number of bad rows among those read so far that were left out, because another row of their image is good.
  virtual std::int64_t bad_rows() const = 0;
};

/// Returns what MergedRows::bad_rows() returns; 0 for other sources.
std::int64_t bad_rows_of(const Source& source);

/// Returns a source in which all samples with the same image are one sample, at the place of the first of them. This sample has all their
/// captions and objects. Of a label, a mask or depths it keeps none if they differ. Bad rows are left out, and the sample is bad only if
/// all its rows are. The log says both once. Returns `source` itself if no two samples have the same image. Samples have the same image if
/// they name the same file and, if `equal_bytes` is true, also if their images have the same bytes, for which all images are read; a stream
/// then throws UserError. Hard negatives are those of the first sample only, because they belong to its caption.
std::shared_ptr<const Source> one_sample_per_image(const std::shared_ptr<const Source>& source,
                                                   bool equal_bytes = false);

}  // namespace tessera
