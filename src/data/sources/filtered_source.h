#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <tessera/data/source.h>
#include <tessera/data/sources/filter_settings.h>

namespace tessera {

/// The samples of a source that pass its filter: the source itself where the settings name none. A source with random access is
/// looked through once, without its pictures where it can (FieldSource); a stream leaves samples out as they come, and is read
/// once at the start to count those that stay, unless `stream_samples` says how many there are. Throws UserError: a filter that
/// is not understood, a field that no sample has, a filter that no sample passes.
std::shared_ptr<Source> filtered(std::shared_ptr<Source> source, const FilterSettings& settings,
                                 std::optional<std::int64_t> stream_samples = std::nullopt);

}  // namespace tessera
