#pragma once

#include <string>
#include <vector>

#include "src/data/formats/paths.h"

namespace tessera {

/// Returns the Parquet and Arrow files that the settings name (expand_paths()). A folder stands for its .parquet files or, if it has none,
/// for its .arrow files. A folder written by Hugging Face datasets' save_to_disk stands for the files that its state.json lists. Throws
/// UserError if files are missing, or if a folder holds several splits; the message then lists the splits.
std::vector<std::string> table_files(const PathList& paths);

}  // namespace tessera
