#include <cmath>

#include <ATen/ATen.h>

#include "src/measure/machine.h"
#include "tools/bench/kernel_bench.h"
#include "tools/bench/kernel_cases.h"
#include "tools/bench/parse_shape.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::bench {
namespace {

double triad_bandwidth(const KernelBenchSettings& s, std::int64_t count) {
  const at::TensorOptions options = at::TensorOptions(s.device).dtype(at::kFloat);
  at::Tensor a = at::zeros({count}, options);
  const at::Tensor b = at::ones({count}, options), c = at::ones({count}, options);
  const double seconds = median_seconds(
      s.device, [&] { at::add_out(a, b, c, 3.0); }, s.repeats, s.time_limit);
  return 3.0 * static_cast<double>(a.nbytes()) / seconds;
}

double matrix_product_flops(const KernelBenchSettings& s, at::ScalarType dtype) {
  const std::int64_t side = s.device.is_cpu() ? 2048 : 8192;
  const double seconds = median_seconds(s.device, square_product(s.device, dtype, side), s.repeats, s.time_limit);
  return 2.0 * std::pow(static_cast<double>(side), 3) / seconds;
}

std::int64_t measure_peak(const at::Device& device, const std::function<void()>& call) {
  const PeakMemory memory(device);
  call();
  synchronize(device);
  return memory.peak();
}

KernelCost measure(const KernelCase& c, const KernelBenchSettings& s) {
  KernelCost cost{c.kernel, c.pass, c.shape, c.dtype, c.flops, c.bytes};
  cost.memory = measure_peak(s.device, c.run_from_start);
  cost.seconds = median_seconds(s.device, c.run, s.repeats, s.time_limit);
  cost.composed_fits = fits_in_memory([&] {
    cost.composed_memory = measure_peak(s.device, c.composed_from_start);
    cost.composed_seconds = median_seconds(s.device, c.composed, s.repeats, s.time_limit);
  });
  return cost;
}

}  // namespace

GroupShape parse_group_shape(const std::string& text, const char* option) {
  const auto sizes = parse_shape(text, 4, option, "64x55x196x512 (B, L, P, D)");
  return {sizes[0], sizes[1], sizes[2], sizes[3]};
}

ContrastShape parse_contrast_shape(const std::string& text) {
  const auto sizes = parse_shape(text, 3, "--token-contrast", "64x55x512 (B, L, D)");
  return {sizes[0], sizes[1], sizes[2]};
}

EncodingShape parse_encoding_shape(const std::string& text) {
  const auto sizes = parse_shape(text, 2, "--flops-regularizer", "512x30522 (N, V)");
  return {sizes[0], sizes[1]};
}

SlotShape parse_slot_shape(const std::string& text) {
  const auto sizes = parse_shape(text, 5, "--slot-attention", "32x128x50x768x64 (B, L, N, d, D)");
  return {sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]};
}

ProjectionShape parse_projection_shape(const std::string& text) {
  const auto sizes = parse_shape(text, 4, "--token-max-projection", "64x196x30522x512 (B, N, V, w)");
  return {sizes[0], sizes[1], sizes[2], sizes[3]};
}

AttentionShape parse_attention_shape(const std::string& text) {
  const auto sizes = parse_shape(text, 4, "--self-attention", "512x197x12x64 (B, N, H, d)");
  return {sizes[0], sizes[1], sizes[2], sizes[3]};
}

CrossEntropyShape parse_cross_entropy_shape(const std::string& text) {
  const auto sizes = parse_shape(text, 3, "--linear-cross-entropy", "4096x49408x512 (T, V, D)");
  return {sizes[0], sizes[1], sizes[2]};
}

CrossEntropyShape parse_soft_cross_entropy_shape(const std::string& text) {
  const auto sizes = parse_shape(text, 4, "--linear-soft-cross-entropy", "2048x49408x768x20 (T, V, D, n)");
  return {sizes[0], sizes[1], sizes[2], sizes[3]};
}

MapShape parse_map_shape(const std::string& text) {
  const auto sizes = parse_shape(text, 3, "--linear-map", "4096x768x3072 (T, I, O)");
  return {sizes[0], sizes[1], sizes[2]};
}

UpdateShape parse_update_shape(const std::string& text) {
  const auto sizes = parse_shape(text, 2, "--adamw", "300x500000 (T, N)");
  return {sizes[0], sizes[1]};
}

double KernelBench::product_flops(at::ScalarType dtype) const {
  double best = 0;
  for (const MachinePeak::Product& each : peak.products)
    if (each.dtype == dtype || each.dtype == at::kFloat) best = std::max(best, each.flops);
  return best;
}

double KernelBench::roofline_seconds(const KernelCost& cost) const {
  const double computing = cost.flops > 0 ? cost.flops / product_flops(cost.dtype) : 0;
  return std::max(cost.bytes / peak.bandwidth, computing);
}

KernelBench measure_kernels(const KernelBenchSettings& s) {
  KernelBench bench;
  bench.machine = machine_name(s.device);
  const bool cpu = s.device.is_cpu();
  bench.peak.bandwidth = triad_bandwidth(s, std::int64_t{1} << (cpu ? 25 : 28));
  bench.peak.cached = triad_bandwidth(s, std::int64_t{1} << (cpu ? 15 : 21));
  std::vector<at::ScalarType> types = {at::kFloat};
  if (std::count(s.dtypes.begin(), s.dtypes.end(), at::kBFloat16) > 0) types.push_back(at::kBFloat16);
  for (const at::ScalarType dtype : types) bench.peak.products.push_back({dtype, matrix_product_flops(s, dtype)});
  const auto add = [&](const std::vector<KernelCase>& cases) {
    for (const KernelCase& each : cases) {
      const KernelCost& cost = bench.costs.emplace_back(measure(each, s));
      if (s.progress)
        s.progress(concat(cost.kernel, " ", cost.pass, ", ", cost.shape, ": ", cost.seconds * 1e3, " ms"));
    }
  };
  for (const at::ScalarType dtype : s.dtypes) {
    for (const UpdateShape& shape : s.updates)
      if (dtype == at::kFloat) add(adamw_cases(shape, s.device));
    for (const GroupShape& shape : s.groups) add(sparsify_group_cases(shape, s.device, dtype));
    for (const EncodingShape& shape : s.encodings) add(flops_regularizer_cases(shape, s.device, dtype));
    for (const SlotShape& shape : s.slots) add(slot_attention_cases(shape, s.device, dtype));
    for (const AttentionShape& shape : s.attentions) add(self_attention_cases(shape, s.device, dtype));
    if (s.device.is_cpu() && dtype != at::kFloat) continue;
    for (const ContrastShape& shape : s.contrasts) add(token_contrast_cases(shape, s.device, dtype));
    for (const ProjectionShape& shape : s.projections) add(token_max_projection_cases(shape, s.device, dtype));
    for (const CrossEntropyShape& shape : s.cross_entropies) add(linear_cross_entropy_cases(shape, s.device, dtype));
    for (const MapShape& shape : s.maps) add(linear_map_cases(shape, s.device, dtype));
    for (const GroupShape& shape : s.similarities) add(max_similarity_cases(shape, s.device, dtype));
  }
  return bench;
}

}  // namespace tessera::bench
