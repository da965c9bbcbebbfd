#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <tessera/data/source.h>
#include <tessera/data/sources/filter_settings.h>

namespace tessera {

/// Returns the samples of a source that pass its filter; without a filter, the source itself. A source with random access is
/// scanned once, without its images if possible (FieldSource). A stream is filtered while it is read; unless `stream_samples`
/// gives the number of samples that pass, it is read once at the start to count them. Throws UserError if the filter cannot be
/// parsed, if no sample has one of its fields, or if no sample passes.
std::shared_ptr<Source> filtered(std::shared_ptr<Source> source, const FilterSettings& settings,
                                 std::optional<std::int64_t> stream_samples = std::nullopt);

}  // namespace tessera
