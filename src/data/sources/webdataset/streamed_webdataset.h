#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/data/sources/webdataset/webdataset.h"
#include <tessera/data/stream.h>

namespace tessera {

/// Reads all shards as streams. This is needed if at least one of them is a stream. Throws UserError if they hold no sample.
std::shared_ptr<StreamSource> make_streamed_webdataset(const WebDatasetSettings& settings,
                                                       std::vector<std::string> shards);

}  // namespace tessera
