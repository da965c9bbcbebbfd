#include <algorithm>
#include <utility>

#include <ATen/Context.h>

#include "src/measure/machine.h"
#include "src/training/log/metrics_row.h"
#include "src/training/log/mfu.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

Arithmetic arithmetic_of(const std::string& precision) {
  if (precision == "bf16") return Arithmetic::bfloat16;
  if (precision == "fp16") return Arithmetic::float16;
  return at::globalContext().allowTF32CuBLAS() ? Arithmetic::tf32 : Arithmetic::float32;
}

}  // namespace

Mfu::Mfu(const Config& config, const at::Device& device) {
  if (config.log.peak_tflops) {
    peak_tflops_ = *config.log.peak_tflops;
    peak_origin_ = "log.peak_tflops";
    return;
  }
  const Arithmetic arithmetic = arithmetic_of(config.training.precision);
  const PeakFlops peak = peak_flops(device, arithmetic);
  peak_tflops_ = peak.flops / 1e12;
  if (peak.measured) measure_ = [=] { return peak_flops(device, arithmetic).flops / 1e12; };
  peak_origin_ = peak.measured ? concat("measured: ", peak.origin, "; log.peak_tflops overrides it") : peak.origin;
}

void Mfu::counted(const FlopCounter& counter, std::int64_t samples) {
  counted_ = true;
  if (samples == 0) return;
  recomputed_per_sample_ = counter.recomputed() / static_cast<double>(samples);
  flops_per_sample_ = counter.flops() / static_cast<double>(samples) - recomputed_per_sample_;
}

std::optional<double> Mfu::tflops(double samples_per_second_and_device) const {
  if (flops_per_sample_ == 0) return std::nullopt;
  return flops_per_sample_ * samples_per_second_and_device / 1e12;
}

std::optional<double> Mfu::share(std::optional<double> tflops) {
  if (!tflops || peak_tflops_ <= 0) return std::nullopt;
  if (measure_ && *tflops > peak_tflops_) {
    const double before = peak_tflops_;
    peak_tflops_ = std::max(measure_(), *tflops);
    news_ = concat("training reached ", format_flop_rate(*tflops), ", more than the measured peak of ",
                   format_flop_rate(before), ": from now on MFU is relative to ", format_flop_rate(peak_tflops_));
  }
  return *tflops / peak_tflops_;
}

std::optional<std::string> Mfu::news() {
  std::string line = std::exchange(news_, {});
  return line.empty() ? std::nullopt : std::optional(std::move(line));
}

std::string Mfu::describe(const std::string& texts) const {
  const std::string again = recomputed_per_sample_ == 0 ? ""
                                                        : concat(" (and ", format_flops(recomputed_per_sample_),
                                                                 " recomputed, not counted)");
  return concat("model: ", format_flops(flops_per_sample_), " per sample, forward and backward",
                texts.empty() ? "" : concat(", in the first batch with ", texts), again,
                "; MFU is relative to ", format_flop_rate(peak_tflops_), " (", peak_origin_, ")");
}

}  // namespace tessera
