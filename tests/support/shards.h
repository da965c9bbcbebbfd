#pragma once

#include <string>
#include <vector>

#include "src/data/packing/pack.h"

namespace tessera {

/// Writes a source as WebDataset shards. Images that are not encoded yet are written as PNG. Returns the shards' paths.
inline std::vector<std::string> write_shards(const Source& source, PackSettings settings) {
  settings.format = "png";
  return pack(source, "", settings).shards;
}

}  // namespace tessera
