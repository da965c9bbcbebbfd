#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tessera/config/fields.h>

namespace tessera {

/// training.micro_batch: how many samples of a batch the towers see at a time.
struct MicroBatch {
  bool automatic = false;               // the largest that fits; settled when the run starts
  std::optional<std::int64_t> samples;  // none: the whole batch at once

  /// The samples at a time of a batch of this size; none when the batch goes through in one pass. Not for `auto`.
  std::optional<std::int64_t> of(std::int64_t batch) const {
    return samples && *samples < batch ? samples : std::nullopt;
  }
};

/// A number, `auto` or null.
template <>
struct config::Value<MicroBatch> {
  static MicroBatch read(const Node& node, const std::string& path, const MicroBatch&);
  static Node dump(const MicroBatch& value);
  static std::string type() { return "int, auto or null"; }
};

}  // namespace tessera
