#include <cmath>
#include <map>

#include <nlohmann/json.hpp>

#include "src/base/clock.h"
#include "src/training/log/metrics_row.h"
#include <tessera/base/text.h>

namespace tessera {
namespace {

constexpr double kNotableWait = 0.1;

// JSON has no NaN or infinity, so such a value becomes null.
nlohmann::json number(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
}

template <class Number>
nlohmann::json number_or_null(const std::optional<Number>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

nlohmann::ordered_json object_of(const std::vector<std::pair<std::string, double>>& values) {
  auto out = nlohmann::ordered_json::object();
  for (const auto& [name, value] : values) out[name] = number(value);
  return out;
}

nlohmann::ordered_json make_json(const RowPlace& place) {
  return {{"step", place.step}, {"time", place.time}, {"epoch", place.epoch}, {"samples", place.samples}};
}

}  // namespace

std::string utc_time() {
  return utc_now("%Y-%m-%dT%H:%M:%SZ");
}

nlohmann::ordered_json to_json(const MetricsRow& r) {
  nlohmann::ordered_json row = make_json(r);
  row["lr"] = r.learning_rate;
  row["loss"] = number(r.loss);
  row["terms"] = object_of(r.terms);
  if (!r.statistics.empty()) row["statistics"] = object_of(r.statistics);
  if (!r.cut.empty()) row["cut"] = object_of(r.cut);
  row["grad_norm"] = number(r.grad_norm);
  row["grad_norms"] = object_of(r.grad_norms);
  row["samples_per_second"] = r.samples_per_second;
  row["seconds"] = r.seconds;
  row["logit_scale"] = r.logit_scale ? number(*r.logit_scale) : nlohmann::json(nullptr);
  if (r.logit_bias) row["logit_bias"] = number(*r.logit_bias);
  row["wait_share"] = r.wait_share;
  if (r.slowest)
    row["ranks"] = {{"wait_share", r.rank_wait_share}, {"slowest", r.slowest->rank}, {"host", r.slowest->host}, {"of_waiting", r.slowest->of_waiting}};
  row["tflops"] = number_or_null(r.tflops);
  row["mfu"] = number_or_null(r.mfu);
  row["memory"] = {
      {"resident", r.resident}, {"resident_peak", r.resident_peak}, {"device_peak", number_or_null(r.device_peak)}};
  if (!r.warnings.empty()) row["warnings"] = r.warnings;
  return row;
}

nlohmann::ordered_json to_json(const RowPlace& place, const std::vector<std::pair<std::string, double>>& metrics) {
  nlohmann::ordered_json row = make_json(place);
  row["evaluation"] = object_of(metrics);
  return row;
}

std::vector<std::pair<std::string, double>> scalars_of(const nlohmann::ordered_json& row) {
  constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;
  // The tags of numbers, and the beginnings of the tags of numbers in groups.
  static const std::map<std::string, std::string> tags = {{"loss", "loss/total"},
                                                          {"lr", "optimizer/learning_rate"},
                                                          {"grad_norm", "optimizer/grad_norm"},
                                                          {"samples_per_second", "throughput/samples_per_second"},
                                                          {"wait_share", "throughput/wait_share"},
                                                          {"tflops", "throughput/tflops"},
                                                          {"mfu", "throughput/mfu"},
                                                          {"logit_scale", "model/logit_scale"},
                                                          {"logit_bias", "model/logit_bias"},
                                                          {"terms", "loss/"},
                                                          {"statistics", "statistics/"},
                                                          {"cut", "cut/"},
                                                          {"grad_norms", "optimizer/grad_norm_"},
                                                          {"evaluation", "evaluation/"},
                                                          {"memory", "memory/"}};
  const auto number_in = [](const nlohmann::ordered_json& value) { return value.is_null() ? std::nan("") : value.get<double>(); };
  std::vector<std::pair<std::string, double>> out;
  for (const auto& [key, value] : row.items()) {
    const auto tag = tags.find(key);
    if (tag == tags.end()) continue;
    if (!value.is_object()) {
      if (!value.is_null() || key == "loss" || key == "grad_norm") out.emplace_back(tag->second, number_in(value));
      continue;
    }
    for (const auto& [name, part] : value.items()) {
      if (key != "memory")
        out.emplace_back(tag->second + name, number_in(part));
      else if (!part.is_null())
        out.emplace_back(tag->second + name + "_gib", part.get<double>() / kGibibyte);
    }
  }
  return out;
}

std::string status_text(const MetricsRow& r) {
  std::string out = "loss " + fixed(r.loss, 4);
  if (r.terms.size() > 1)
    for (const auto& [name, value] : r.terms) out += "  " + name + " " + fixed(value, 4);
  out += "  " + fixed(r.samples_per_second, r.samples_per_second < 100 ? 1 : 0) + " samples/s";
  if (r.tflops) out += "  " + format_flop_rate(*r.tflops);
  if (r.mfu) out += " (" + fixed(100 * *r.mfu, *r.mfu < 0.1 ? 1 : 0) + "% MFU)";
  if (r.wait_share > kNotableWait) out += "  waits for data " + fixed(100 * r.wait_share, 0) + "%";
  if (r.slowest && r.rank_wait_share > kNotableWait)
    out += concat("  ranks wait ", fixed(100 * r.rank_wait_share, 0), "%, ", fixed(100 * r.slowest->of_waiting, 0), "% of it for rank ", r.slowest->rank,
                  " on ", r.slowest->host);
  return out;
}

std::string format_flop_rate(double tflops) {
  const bool small = tflops < 1;
  const double value = small ? 1000 * tflops : tflops;
  return fixed(value, value < 10 ? 1 : 0) + (small ? " GFLOP/s" : " TFLOP/s");
}

}  // namespace tessera
