#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tessera/config/fields.h>

namespace tessera {

/// How to read shards that are streams: the output of commands, and compressed tars.
struct StreamSettings {
  std::int64_t buffer = 1000;
  std::optional<std::int64_t> samples;
  std::int64_t retries = 3;
  std::string on_failure = "stop";
  double timeout = 60;
};

template <class Visitor>
void fields(Visitor& v, StreamSettings& s) {
  v("buffer", s.buffer, "number of samples kept in memory, from which the next one is drawn at random",
    config::at_least(1));
  v("samples", s.samples,
    "samples in an epoch, over all processes; null: count them at the start, which reads all data once",
    config::at_least(1));
  v("retries", s.retries, "how often a failed stream is read again from its start, skipping the samples already read",
    config::at_least(0));
  v("on_failure", s.on_failure,
    "after the last retry: stop the run, or skip the rest of this stream (counted as one bad sample, shard_failed)",
    config::one_of({"stop", "skip"}));
  v("timeout", s.timeout, "seconds without output after which a command counts as failed", config::above(0));
}

}  // namespace tessera
