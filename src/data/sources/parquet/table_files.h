#pragma once

#include <string>
#include <vector>

#include <tessera/data/formats/paths.h>

namespace tessera {

/// The Parquet and Arrow files that settings name (expand_paths()). A folder stands for its .parquet files, or else its .arrow
/// files; one that save_to_disk of Hugging Face's datasets wrote for those that its state.json lists. Throws UserError; of a
/// folder of several splits it names them.
std::vector<std::string> table_files(const PathList& paths);

}  // namespace tessera
