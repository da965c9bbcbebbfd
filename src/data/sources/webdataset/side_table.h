#pragma once

#include <string>
#include <unordered_map>

#include "src/data/formats/row_filter.h"

namespace tessera {

/// A filter's verdicts on samples, by key.
using SideTable = std::unordered_map<std::string, FilterVerdict>;

/// Applies the filter to the samples of a shard, using the Parquet file next to the shard (00000.parquet for 00000.tar, from img2dataset).
/// The file's column `key` holds the keys of the samples. If the file is missing, if it lacks one of the filter's fields, or if Arrow is
/// not available, returns an empty table; the caller must then use the samples' own fields. Throws UserError if the file is damaged.
SideTable judge_side_table(const std::string& shard, const RowFilter& filter);

}  // namespace tessera
