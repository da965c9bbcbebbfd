#include <tessera/base/error.h>
#include <tessera/training/config/micro_batch.h>

namespace tessera {
namespace config {

MicroBatch Value<MicroBatch>::read(const Node& node, const std::string& path, const MicroBatch&) {
  if (node.is_null()) return {};
  if (node.is_scalar() && node.text() == "auto") return {true, std::nullopt};
  std::int64_t samples = 0;
  try {
    samples = Value<std::int64_t>::read(node, path, 0);
  } catch (const UserError&) {
    fail(node, path, "expected a number of samples, auto or null, got " + node.describe());
  }
  if (samples < 1) fail(node, path, "expected at least 1, got " + node.text());
  return {false, samples};
}

Node Value<MicroBatch>::dump(const MicroBatch& value) {
  if (value.automatic) return Node::scalar("auto");
  return Value<std::optional<std::int64_t>>::dump(value.samples);
}

}  // namespace config
}  // namespace tessera
