#pragma once

#include <string>
#include <vector>

#include <tessera/data/formats/paths.h>

namespace tessera {

/// Returns the Parquet and Arrow files that the settings name (expand_paths()). A folder means its .parquet files, or its .arrow files if
/// it has no .parquet files. For a folder written by Hugging Face datasets' save_to_disk, it means the files that its state.json lists.
/// Throws UserError; for a folder with several splits the message lists them.
std::vector<std::string> table_files(const PathList& paths);

}  // namespace tessera
