#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tessera/config/fields.h>

namespace tessera::config {

/// A setting that says how many samples of a batch are processed at a time: a number, `auto` or null.
struct SamplesAtATime {
  bool automatic = false;               // true: the run determines the number when it starts
  std::optional<std::int64_t> samples;  // nullopt: the whole batch at once

  /// Returns the number of samples to process at a time if a batch has `batch` samples; nothing if that is the whole batch. If the setting
  /// is `auto`, the number must be determined before this call.
  std::optional<std::int64_t> of(std::int64_t batch) const {
    return samples && *samples < batch ? samples : std::nullopt;
  }
  operator const std::optional<std::int64_t>&() const { return samples; }  // NOLINT
};

template <>
struct Value<SamplesAtATime> {
  static SamplesAtATime read(const Node& node, const std::string& path, const SamplesAtATime&);
  static Node dump(const SamplesAtATime& value);
  static std::string type() { return "int, auto or null"; }
};

}  // namespace tessera::config
