#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "src/data/sources/filter_settings.h"
#include <tessera/data/source.h>

namespace tessera {

/// Returns a source with the samples that pass the filter; without a filter, returns the source itself. A source with random access
/// is scanned once, without its images if possible (FieldSource). A stream is filtered while it is read. If `stream_samples` does
/// not say how many samples pass, the stream is read once at the start to count them. Throws UserError if the filter cannot be
/// parsed, if it uses a field that no sample has, or if no sample passes.
std::shared_ptr<Source> filtered(std::shared_ptr<Source> source, const FilterSettings& settings,
                                 std::optional<std::int64_t> stream_samples = std::nullopt);

}  // namespace tessera
