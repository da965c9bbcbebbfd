#include <sstream>

#include <nlohmann/json.hpp>

#include "src/report/markdown_table.h"
#include "tools/bench/kernel_bench.h"

namespace tessera::bench {
namespace {

const char* name_of(at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? "bfloat16" : "float32";
}

std::string percent(double share) {
  return report::three_digits(share * 100) + "%";
}

std::string mebibytes(double bytes) {
  return report::three_digits(bytes / (1024.0 * 1024.0));
}

}  // namespace

std::string to_markdown(const KernelBench& bench) {
  std::ostringstream out;
  out << "Machine: " << bench.machine << ". Triad: " << report::three_digits(bench.peak.bandwidth / 1e9)
      << " GB/s, in the cache " << report::three_digits(bench.peak.cached / 1e9) << " GB/s. Matrix product:";
  for (const MachinePeak::Product& product : bench.peak.products)
    out << (&product == &bench.peak.products.front() ? " " : ", ") << report::three_digits(product.flops / 1e9)
        << " GFLOP/s in " << name_of(product.dtype);
  out << ".\n";
  if (bench.costs.empty()) return out.str();
  out << "\n";
  std::vector<std::vector<std::string>> rows;
  for (const KernelCost& cost : bench.costs) {
    const auto composed = [&](const std::string& cell) { return cost.composed_fits ? cell : "does not fit"; };
    rows.push_back(
        {cost.kernel + " " + cost.pass, cost.shape, name_of(cost.dtype), report::three_digits(cost.seconds * 1e3),
         composed(report::three_digits(cost.composed_seconds * 1e3)),
         cost.composed_fits ? report::three_digits(cost.composed_seconds / cost.seconds) + "x" : "-",
         mebibytes(cost.bytes), report::three_digits(cost.flops / 1e9), percent(cost.bytes / cost.seconds / bench.peak.bandwidth),
         cost.flops > 0 ? percent(cost.flops / cost.seconds / bench.product_flops(cost.dtype)) : "-",
         percent(bench.roofline_seconds(cost) / cost.seconds),
         mebibytes(static_cast<double>(cost.memory)), composed(mebibytes(static_cast<double>(cost.composed_memory)))});
  }
  out << report::markdown_table({"kernel", "shape", "type", "ms", "composed ms", "speed-up", "MiB moved", "GFLOPs",
                                 "of bandwidth", "of product peak", "of roofline", "peak MiB", "composed peak MiB"},
                                rows);
  return out.str();
}

std::string to_json(const KernelBench& bench) {
  nlohmann::ordered_json json = {{"machine", bench.machine},
                                 {"bytes_per_second", bench.peak.bandwidth},
                                 {"cached_bytes_per_second", bench.peak.cached},
                                 {"products", nlohmann::ordered_json::array()},
                                 {"kernels", nlohmann::ordered_json::array()}};
  for (const MachinePeak::Product& product : bench.peak.products)
    json["products"].push_back({{"dtype", name_of(product.dtype)}, {"flops_per_second", product.flops}});
  for (const KernelCost& cost : bench.costs) {
    const auto composed = [&](const nlohmann::ordered_json& value) {
      return cost.composed_fits ? value : nlohmann::ordered_json(nullptr);
    };
    json["kernels"].push_back({{"kernel", cost.kernel},
                               {"pass", cost.pass},
                               {"shape", cost.shape},
                               {"dtype", name_of(cost.dtype)},
                               {"flops", cost.flops},
                               {"bytes", cost.bytes},
                               {"roofline_seconds", bench.roofline_seconds(cost)},
                               {"seconds", cost.seconds},
                               {"composed_seconds", composed(cost.composed_seconds)},
                               {"peak_bytes", cost.memory},
                               {"composed_peak_bytes", composed(cost.composed_memory)}});
  }
  return json.dump(1) + "\n";
}

}  // namespace tessera::bench
