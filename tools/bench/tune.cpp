#include "tools/bench/tune.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <optional>
#include <sstream>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>

#include "kernels/sparsify_group/sparsify_group.h"
#include "src/measure/machine.h"
#include "src/ops/sparsify_group.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/ops/sparsify_group.h>

namespace tessera::bench {
namespace {

using kernels::Pass;

constexpr double kMicro = 1e6;

TuningCandidate measure_candidate(const TuningCase& tuned, const std::string& configuration, const Tensors& reference,
                                  const Timer& timer) {
  TuningCandidate out{configuration};
  std::optional<ForcedConfiguration> forced;
  if (!configuration.empty()) forced.emplace(tuned.key, configuration);
  try {
    out.error = relative_error(tuned.run(), reference);
    out.wrong = !(out.error <= tuned.tolerance);
    if (out.wrong)
      out.reason = concat("its error is ", out.error, ", above ", tuned.tolerance);
    else
      out.seconds = timer([&] { tuned.run(); });
  } catch (const c10::Error& error) {
    out.reason = error.what_without_backtrace();
  }
  return out;
}

std::string words_for(const TunedCase& measured) {
  std::ostringstream out;
  out << measured.key.op << (measured.key.pass == Pass::kForward ? " forward" : " backward") << ", " << measured.problem << ", "
      << (measured.key.type == at::kFloat ? "float32" : "bfloat16");
  return out.str();
}

}  // namespace

double relative_error(const Tensors& results, const Tensors& reference) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  if (results.size() != reference.size()) return kInfinite;
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i].sizes() != reference[i].sizes()) return kInfinite;
    const at::Tensor ours = results[i].to(at::kDouble);
    if (!ours.isnan().equal(reference[i].isnan())) return kInfinite;
    difference += (ours - reference[i]).nan_to_num(0.0).square().sum().item<double>();
    norm += reference[i].nan_to_num(0.0).square().sum().item<double>();
  }
  if (difference == 0) return 0;
  return norm > 0 ? std::sqrt(difference / norm) : kInfinite;
}

TunedCase tune(const TuningCase& tuned, const Timer& timer) {
  TunedCase out{tuned.key, tuned.problem, {}};
  const Tensors reference = tuned.reference();
  out.candidates.push_back(measure_candidate(tuned, "", reference, timer));
  for (const std::string& configuration : tuned.configurations)
    out.candidates.push_back(measure_candidate(tuned, configuration, reference, timer));
  return out;
}

const TuningCandidate* TunedCase::best() const {
  const TuningCandidate* fastest = nullptr;
  for (const TuningCandidate& each : candidates)
    if (!each.configuration.empty() && each.reason.empty() && (fastest == nullptr || each.seconds < fastest->seconds)) fastest = &each;
  return fastest;
}

void TuneBench::add(const TuningCase& tuned, TunedCase measured) {
  if (const TuningCandidate* const best = measured.best()) {
    TuningChoice choice{best->configuration, tuned.library, {}};
    for (const TuningCandidate& each : measured.candidates)
      if (each.reason.empty()) choice.microseconds[each.configuration.empty() ? "rule" : each.configuration] = each.seconds * kMicro;
    table.choices[measured.key] = std::move(choice);
  }
  cases.push_back(std::move(measured));
}

bool TuneBench::any_wrong() const {
  return std::ranges::any_of(
      cases, [](const TunedCase& each) { return std::ranges::any_of(each.candidates, &TuningCandidate::wrong); });
}

TuneBench measure_tuning(const TuneSettings& settings) {
  if (settings.device.is_cpu())
    user_error("tune: needs a GPU, because only kernels for GPUs have configurations: run it with --device cuda on the GPU "
               "for which you want a table");
  std::vector<TunableOperator> operators = tunable_operators();
  std::vector<std::string> names;
  for (const TunableOperator& each : operators) names.push_back(each.name);
  for (const std::string& wanted : settings.operators)
    if (!contains(names, wanted)) user_error("--operators ", wanted, suggestion(wanted, names));
  const Timer timer = [&](const std::function<void()>& call) {
    return median_seconds(settings.device, call, settings.repeats, settings.time_limit);
  };
  TuneBench bench;
  bench.table.gpu = machine_name(settings.device);
  for (const TunableOperator& each : operators) {
    if (!settings.operators.empty() && !contains(settings.operators, each.name)) continue;
    for (const TuningCase& tuned : each.cases(settings.device)) {
      bench.add(tuned, tune(tuned, timer));
      const TuningCandidate* const best = bench.cases.back().best();
      if (settings.progress)
        settings.progress(concat(words_for(bench.cases.back()), ": ", best == nullptr ? "none" : best->configuration));
    }
  }
  bench.table.libraries = library_versions();  // after the measurements, which load the libraries
  return bench;
}

std::string to_markdown(const TuneBench& bench) {
  std::ostringstream out;
  out << "Configurations on " << bench.table.gpu << ", in microseconds (digest " << bench.table.digest() << ")\n\n"
      << "| problem | rule | best | configuration | others |\n| --- | ---: | ---: | --- | --- |\n"
      << std::fixed << std::setprecision(1);
  const auto put = [&](const TuningCandidate& candidate) {
    candidate.reason.empty() ? out << candidate.seconds * kMicro : out << candidate.reason;
  };
  for (const TunedCase& each : bench.cases) {
    const TuningCandidate* const best = each.best();
    out << "| " << words_for(each) << " | ";
    put(each.candidates.front());
    out << " | ";
    if (best != nullptr) put(*best);
    out << " | " << (best == nullptr ? "none" : best->configuration) << " | ";
    const char* separator = "";
    for (const TuningCandidate& other : each.candidates) {
      if (&other == best || other.configuration.empty()) continue;
      out << separator << other.configuration << ": ";
      put(other);
      separator = "; ";
    }
    out << " |\n";
  }
  return out.str();
}

std::string to_json(const TuneBench& bench) {
  return tessera::to_json(bench.table);
}

std::vector<TunableOperator> tunable_operators() {
  return {{"sparsify_group", sparsify_group_tuning_cases},
          {"self_attention", self_attention_tuning_cases},
          {"linear_map", linear_map_tuning_cases},
          {"token_max_projection", token_max_projection_tuning_cases},
          {"max_similarity", max_similarity_tuning_cases}};
}

std::vector<TuningCase> sparsify_group_tuning_cases(const at::Device& device) {
  constexpr std::int64_t kBatch = 512, kWidth = 512;
  std::vector<TuningCase> out;
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat})
    for (const std::int64_t tokens : {32, 55, 76})
      for (const std::int64_t patches : {49, 196, 256, 576}) {
        const auto random = [&](std::int64_t rows) {
          return at::randn({kBatch, rows, kWidth}, at::TensorOptions(device).dtype(at::kFloat)).to(type).requires_grad_();
        };
        const at::Tensor text = random(tokens), image = random(patches), gradient = random(tokens).detach();
        const at::Tensor mask = at::ones({kBatch, tokens}, at::TensorOptions(device).dtype(at::kBool));
        const auto forward = [mask](const at::Tensor& of_text, const at::Tensor& of_image) {
          return sparsify_group(of_text, of_image, mask, SparsifySettings{});
        };
        // The graph of the forward pass, which all measurements of the backward pass share.
        const auto grouped = std::make_shared<at::Tensor>();
        const auto backward = [=] {
          if (!grouped->defined()) *grouped = forward(text, image);
          return torch::autograd::grad({*grouped}, {text, image}, {gradient}, /*retain_graph=*/true);
        };
        const auto reference = [=](bool gradients) -> Tensors {
          const at::Tensor t = text.detach().to(at::kDouble).requires_grad_(gradients),
                           v = image.detach().to(at::kDouble).requires_grad_(gradients);
          const at::Tensor result = forward(t, v);
          if (!gradients) return {result};
          return torch::autograd::grad({result}, {t, v}, {gradient.to(at::kDouble)});
        };
        const auto add = [&](Pass pass, std::function<Tensors()> run) {
          out.push_back({sparsify_group_tuning_key(pass, type, tokens, patches),
                         concat("B=", kBatch, " L=", tokens, " P=", patches, " D=", kWidth),
                         kernels::sparsify_group_configurations(), std::move(run), [=] { return reference(pass == Pass::kBackward); },
                         type == at::kBFloat16 ? 1e-2 : 1e-4});
        };
        add(Pass::kForward, [=] { return Tensors{forward(text.detach(), image.detach())}; });
        add(Pass::kBackward, backward);
      }
  return out;
}

}  // namespace tessera::bench
