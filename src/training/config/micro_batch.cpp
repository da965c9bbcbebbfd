#include <tessera/base/error.h>
#include <tessera/training/memory/memory_model.h>
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

std::optional<MemoryPlan> largest_that_fits(MemoryModel& model, std::int64_t batch) {
  std::int64_t before = 0;
  const auto attempt = [&](std::int64_t parts) -> std::optional<MemoryPlan> {
    const std::int64_t samples = (batch + parts - 1) / parts;
    if (samples == before) return std::nullopt;
    before = samples;
    const MemoryPlan plan = model.plan(samples);
    return plan.fits() && model.fits_when_tried(samples) ? std::optional(plan) : std::nullopt;
  };
  // Equal parts: 1, 2, 3, 4, 6, 8, 12, 16, ... of them.
  for (std::int64_t parts = 1; before != 1; parts *= 2) {
    if (const auto plan = attempt(parts)) return plan;
    if (parts == 1) continue;
    if (const auto plan = attempt(parts + parts / 2)) return plan;
  }
  return std::nullopt;
}

}  // namespace tessera
