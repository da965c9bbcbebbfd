#pragma once

#include <functional>
#include <string>

#include <tessera/data/loader.h>
#include <tessera/data/source.h>

namespace tessera {

/// Called between two attempts with what went wrong and the seconds to wait.
using Pause = std::function<void(double seconds, const std::string& what)>;

/// Reads a sample, again when its source fails, as the settings' `retries`, `retry_seconds` and `on_failure` say.
/// Throws SampleError (this sample; or `io_error`: the source with on_failure skip), UserError (the source), what
/// `pause` throws.
Sample read_sample(const Source& source, std::int64_t index, const LoaderSettings& settings, const Pause& pause);

/// Waits, and logs why.
void pause_and_tell(double seconds, const std::string& what);

}  // namespace tessera
