#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tessera/config/fields.h>

namespace tessera {

/// How shards are read that come as streams: commands and compressed tars.
struct StreamSettings {
  std::int64_t buffer = 1000;
  std::optional<std::int64_t> samples;
  std::int64_t retries = 3;
  std::string on_failure = "stop";
  double timeout = 60;
};

template <class Visitor>
void fields(Visitor& v, StreamSettings& s) {
  v("buffer", s.buffer, "samples of which the next one is drawn at random; they are kept in memory",
    config::at_least(1));
  v("samples", s.samples,
    "samples of an epoch, over all processes; null: they are counted at the start, which reads all of them once",
    config::at_least(1));
  v("retries", s.retries, "how often a stream that fails is read again from its start, passing over what it gave",
    config::at_least(0));
  v("on_failure", s.on_failure,
    "after that: stop the run, or skip the rest of this stream (counted as one bad sample, shard_failed)",
    config::one_of({"stop", "skip"}));
  v("timeout", s.timeout, "seconds for which a command may give no byte before it counts as failed", config::above(0));
}

}  // namespace tessera
