#pragma once

#include <memory>
#include <string>
#include <vector>

#include <tessera/data/stream.h>
#include <tessera/data/sources/webdataset/webdataset.h>

namespace tessera {

/// Samples of shards at least one of which is a stream; all of them are read as streams then. Throws UserError when
/// they hold no sample.
std::shared_ptr<StreamSource> make_streamed_webdataset(const WebDatasetSettings& settings,
                                                       std::vector<std::string> shards);

}  // namespace tessera
