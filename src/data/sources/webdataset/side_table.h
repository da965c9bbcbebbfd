#pragma once

#include <string>
#include <unordered_map>

#include "src/data/formats/row_filter.h"

namespace tessera {

/// What a filter says of samples, by their keys.
using SideTable = std::unordered_map<std::string, FilterVerdict>;

/// That of the samples in the Parquet file beside a shard (00000.parquet beside 00000.tar, as img2dataset writes it), whose
/// column `key` has the keys. Empty where there is no such file, where it lacks a field of the filter, or where Arrow is not
/// there: the samples' own fields are to be asked then. Throws UserError: a file that is damaged.
SideTable judge_side_table(const std::string& shard, const RowFilter& filter);

}  // namespace tessera
