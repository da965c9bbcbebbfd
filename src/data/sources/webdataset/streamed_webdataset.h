#pragma once

#include <memory>
#include <string>
#include <vector>

#include <tessera/data/stream.h>
#include <tessera/data/sources/webdataset/webdataset.h>

namespace tessera {

/// Reads shards of which at least one is a stream; then all of them are read as streams. Throws UserError if they hold no sample.
std::shared_ptr<StreamSource> make_streamed_webdataset(const WebDatasetSettings& settings,
                                                       std::vector<std::string> shards);

}  // namespace tessera
