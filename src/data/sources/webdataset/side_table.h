#pragma once

#include <string>
#include <unordered_map>

#include "src/data/formats/row_filter.h"

namespace tessera {

/// A filter's verdicts on samples, by key.
using SideTable = std::unordered_map<std::string, FilterVerdict>;

/// Judges the samples of a shard by the Parquet file next to the shard (00000.parquet for 00000.tar, as img2dataset writes it). The file's
/// column `key` holds the keys of the samples. Returns an empty table if there is no such file, if it lacks one of the filter's fields, or
/// if Arrow is not available. The caller must then use the samples' own fields. Throws UserError if the file is damaged.
SideTable judge_side_table(const std::string& shard, const RowFilter& filter);

}  // namespace tessera
