#include <cmath>
#include <functional>
#include <limits>
#include <sstream>

#include <nlohmann/json.hpp>

#include "src/report/markdown_table.h"
#include "src/report/page.h"
#include "tools/bench/loss_bench.h"
#include <tessera/base/text.h>

namespace tessera::bench {
namespace {

constexpr double kMebibyte = 1024.0 * 1024.0, kGiga = 1e9, kTera = 1e12;

// A quantity that the tables and the plot show.
struct Quantity {
  std::string title;
  std::function<double(const LossCost&, const ModelCost*)> value;  // if the quantity depends only on the loss, the ModelCost may be null
  bool plotted = true;
};

using StepFlops = double (*)(const ModelCost&, const LossCost&);

// Returns how many percent more a step costs than CLIP's step at the same batch size; NaN if CLIP was not measured.
double percent_over_clip(const LossBench& bench, const LossCost& cost, const ModelCost& model, StepFlops step) {
  const LossCost* const clip = bench.find("clip", cost.batch_size);
  const ModelCost* const clip_model = bench.find_model("clip");
  if (clip == nullptr || clip_model == nullptr || clip->outcome != Outcome::measured)
    return std::numeric_limits<double>::quiet_NaN();
  return (step(model, cost) / step(*clip_model, *clip) - 1) * 100;
}

std::vector<Quantity> quantities(const LossBench& bench) {
  std::vector<Quantity> out = {
      {"Loss alone, GFLOPs", [](const LossCost& c, const ModelCost*) { return c.flops / kGiga; }},
      {"Loss alone, peak memory (MiB)",
       [](const LossCost& c, const ModelCost*) { return static_cast<double>(c.memory) / kMebibyte; }},
      {"Loss alone, time (ms)", [](const LossCost& c, const ModelCost*) { return c.seconds * 1e3; }}};
  if (bench.models.empty()) return out;
  out.push_back(
      {"Update step, TFLOPs", [](const LossCost& c, const ModelCost* t) { return step_flops(*t, c) / kTera; }, false});
  out.push_back({"Update step, peak memory (MiB)",
                 [](const LossCost& c, const ModelCost* t) { return step_memory(*t, c) / kMebibyte; }});
  if (bench.find_model("clip") == nullptr) return out;
  for (const auto& [title, step] : {std::pair<const char*, StepFlops>{"Update step, FLOPs over CLIP's (%)", step_flops},
                                    {"Update step, peak memory over CLIP's (%)", step_memory}}) {
    out.push_back({title, [&bench, step](const LossCost& c, const ModelCost* t) {
                     return percent_over_clip(bench, c, *t, step);
                   }});
  }
  return out;
}

std::string cell(const LossBench& bench, const LossCost* cost, const Quantity& quantity) {
  if (cost == nullptr) return "-";
  if (cost->outcome == Outcome::does_not_fit) return "does not fit";
  if (cost->outcome == Outcome::takes_too_long) return "too long";
  return report::three_digits(quantity.value(*cost, bench.find_model(cost->objective)));
}

std::string table(const LossBench& bench, const Quantity& quantity) {
  std::vector<std::string> header = {quantity.title};
  for (const std::int64_t batch : bench.settings.batch_sizes) header.push_back("B = " + with_thousands(batch));
  std::vector<std::vector<std::string>> rows;
  for (const NamedObjective& objective : bench.settings.objectives) {
    std::vector<std::string>& row = rows.emplace_back(1, objective.label);
    for (const std::int64_t batch : bench.settings.batch_sizes)
      row.push_back(cell(bench, bench.find(objective.label, batch), quantity));
  }
  return report::markdown_table(header, rows);
}

std::string more(double value, double baseline) {
  const double percent = (value / baseline - 1) * 100;
  return (percent < 0 ? "" : "+") + report::three_digits(percent) + "%";
}

// Describes how much more SPARC costs than CLIP, at the largest batch size measured for both.
std::string comparison(const LossBench& bench) {
  const LossCost *clip = nullptr, *sparc = nullptr;
  for (const std::int64_t batch : bench.settings.batch_sizes) {
    const LossCost *a = bench.find("clip", batch), *b = bench.find("sparc", batch);
    if (a == nullptr || b == nullptr || a->outcome != Outcome::measured || b->outcome != Outcome::measured) continue;
    clip = a;
    sparc = b;
  }
  if (clip == nullptr) return "";
  std::ostringstream out;
  out << "SPARC over CLIP at B = " << with_thousands(clip->batch_size) << ": the loss alone takes "
      << report::three_digits((sparc->flops - clip->flops) / kGiga) << " GFLOPs and "
      << report::three_digits(static_cast<double>(sparc->memory - clip->memory) / kMebibyte) << " MiB more ("
      << more(sparc->flops, clip->flops) << " and "
      << more(static_cast<double>(sparc->memory), static_cast<double>(clip->memory)) << ")";
  const ModelCost *clip_model = bench.find_model("clip"), *sparc_model = bench.find_model("sparc");
  if (clip_model != nullptr && sparc_model != nullptr) {
    out << ", the update step " << more(step_flops(*sparc_model, *sparc), step_flops(*clip_model, *clip))
        << " FLOPs and " << more(step_memory(*sparc_model, *sparc), step_memory(*clip_model, *clip)) << " memory";
  }
  out << ".\n";
  return out.str();
}

const char* name_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::measured:
      return "measured";
    case Outcome::does_not_fit:
      return "does not fit";
    case Outcome::takes_too_long:
      return "takes too long";
  }
  return "";
}

}  // namespace

std::string to_markdown(const LossBench& bench) {
  const LossBenchSettings& s = bench.settings;
  std::ostringstream out;
  out << "Machine: " << bench.machine << ". Features: P = " << s.patches << ", L = " << s.tokens << ", D = " << s.width
      << ", " << (s.dtype == at::kBFloat16 ? "bfloat16" : "float32") << "; forward and backward.\n";
  for (const Quantity& quantity : quantities(bench)) out << "\n" << table(bench, quantity);
  const std::string last = comparison(bench);
  if (!last.empty()) out << "\n" << last;
  return out.str();
}

std::string to_json(const LossBench& bench) {
  const LossBenchSettings& s = bench.settings;
  nlohmann::ordered_json json = {{"machine", bench.machine},
                                 {"patches", s.patches},
                                 {"tokens", s.tokens},
                                 {"width", s.width},
                                 {"dtype", s.dtype == at::kBFloat16 ? "bfloat16" : "float32"},
                                 {"costs", nlohmann::ordered_json::array()},
                                 {"towers", nlohmann::ordered_json::array()}};
  for (const LossCost& cost : bench.costs) {
    nlohmann::ordered_json row = {
        {"objective", cost.objective}, {"batch_size", cost.batch_size}, {"outcome", name_of(cost.outcome)}};
    if (cost.outcome == Outcome::measured) {
      row["flops"] = cost.flops;
      row["peak_bytes"] = cost.memory;
      row["seconds"] = cost.seconds;
    }
    json["costs"].push_back(row);
  }
  for (const ModelCost& cost : bench.models) {
    const CostCurve& forward = cost.towers.forward;
    json["towers"].push_back({{"objective", cost.objective},
                              {"parameters", cost.parameters},
                              {"state_bytes", cost.state},
                              {"activation_bytes_per_pair", forward.trace(2).held() - forward.trace(1).held()},
                              {"flops_per_pair", cost.towers.flops(2) - cost.towers.flops(1)}});
  }
  return json.dump(1) + "\n";
}

std::string to_page(const LossBench& bench) {
  auto charts = nlohmann::json::array();
  for (const Quantity& quantity : quantities(bench)) {
    if (!quantity.plotted) continue;
    auto lines = nlohmann::json::array();
    for (const NamedObjective& objective : bench.settings.objectives) {
      std::vector<double> sizes, values;
      for (const LossCost& cost : bench.costs) {
        if (cost.objective != objective.label || cost.outcome != Outcome::measured) continue;
        const double value = quantity.value(cost, bench.find_model(cost.objective));
        if (!(value > 0) || !std::isfinite(value)) continue;  // the axes are logarithmic
        sizes.push_back(static_cast<double>(cost.batch_size));
        values.push_back(value);
      }
      lines.push_back({objective.label, sizes, values});
    }
    charts.push_back({{"title", quantity.title}, {"xName", "batch size"}, {"log", true}, {"lines", lines}});
  }
  const nlohmann::json card = {{"type", "curve"}, {"charts", charts}};
  return report::page({{"kind", "cards"}, {"title", "Cost of each loss by batch size"}, {"sections", {{{"title", ""}, {"cards", {card}}}}}});
}

}  // namespace tessera::bench
