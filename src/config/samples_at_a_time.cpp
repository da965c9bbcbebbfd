#include <tessera/base/error.h>
#include <tessera/config/samples_at_a_time.h>

namespace tessera::config {

SamplesAtATime Value<SamplesAtATime>::read(const Node& node, const std::string& path, const SamplesAtATime&) {
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

Node Value<SamplesAtATime>::dump(const SamplesAtATime& value) {
  return value.automatic ? Node::scalar("auto") : Value<std::optional<std::int64_t>>::dump(value.samples);
}

}  // namespace tessera::config
