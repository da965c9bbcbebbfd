#pragma once

#include <memory>

#include <tessera/data/source.h>

namespace tessera {

/// Returns a source in which all samples with the same image are one sample, at the place of the first of them. This sample has all their
/// captions and objects. Of a label, a mask or depths it keeps none if they differ. Bad rows are left out, and the sample is bad only if
/// all its rows are. The log says both once. Returns `source` itself if no two samples have the same image. Samples have the same image if
/// they name the same file and, if `equal_bytes` is true, also if their images have the same bytes, for which all images are read; a stream
/// then throws UserError. Hard negatives are those of the first sample only, because they belong to its caption.
std::shared_ptr<const Source> one_sample_per_image(const std::shared_ptr<const Source>& source,
                                                   bool equal_bytes = false);

}  // namespace tessera
