#include <ATen/ATen.h>

#include "src/base/half_cosine.h"
#include "src/optim/adamw.h"
#include "src/optim/clip_grad_norm.h"
#include "src/optim/lamb.h"
#include "src/optim/muon.h"
#include "tests/reference/all_runners.h"
#include "tests/reference/runner.h"
#include <tessera/optim/ema.h>
#include <tessera/optim/schedule.h>

namespace tessera::probe {
namespace {

// The settings of a schedule as the reference cases store them, together with the peak and the length.
struct LrScheduleCase {
  double lr = 1.0;
  std::int64_t total_steps = 0;
  ScheduleSettings shape;
};

template <class Visitor>
void fields(Visitor& v, LrScheduleCase& s) {
  v("lr", s.lr, "peak");
  v("total_steps", s.total_steps, "length, including warm-up");
  fields(v, s.shape);
}

// The length of a run as DINO's cases store it.
struct EpochsCase {
  std::int64_t epochs = 100;
  std::int64_t steps_per_epoch = 1;
};

template <class Visitor>
void fields(Visitor& v, EpochsCase& s) {
  v("epochs", s.epochs, "length of the run", config::at_least(1));
  v("steps_per_epoch", s.steps_per_epoch, "steps of an epoch", config::at_least(1));
}

struct CosineScheduleCase : EpochsCase {
  double base_value = 1.0;
  double final_value = 0.0;
  std::int64_t warmup_epochs = 0;
  double start_warmup_value = 0.0;
};

template <class Visitor>
void fields(Visitor& v, CosineScheduleCase& s) {
  fields(v, static_cast<EpochsCase&>(s));
  v("base_value", s.base_value, "after the warm-up");
  v("final_value", s.final_value, "after the last step");
  v("warmup_epochs", s.warmup_epochs, "of linear growth", config::at_least(0));
  v("start_warmup_value", s.start_warmup_value, "its first value");
}

struct EmaCase : EpochsCase {
  double base_value = 0.996;
  double final_value = 1.0;
};

template <class Visitor>
void fields(Visitor& v, EmaCase& s) {
  fields(v, static_cast<EpochsCase&>(s));
  v("base_value", s.base_value, "momentum of the first step");
  v("final_value", s.final_value, "after the last one");
}

struct ClipCase {
  double max_norm = 1.0;
};

template <class Visitor>
void fields(Visitor& v, ClipCase& s) {
  v("max_norm", s.max_norm, "limit", config::above(0));
}

struct ClipPerParameterCase : ClipCase {
  ClipPerParameterCase() : ClipCase{3.0} {}
};

std::vector<NamedParameter> parameters_of(Run& run) {
  std::vector<NamedParameter> out;
  for (const std::string& name : run.parameter_names())
    out.push_back({name, run.parameter(name).detach().clone().set_requires_grad(true)});
  return out;
}

// Gives the case's gradients to an optimizer, step by step. Calls `after_step` after each step.
template <class AnyOptimizer>
Outputs play(Run& run, AnyOptimizer& optimizer, const std::function<void()>& after_step) {
  const at::Tensor rates = run.input("lr").to(at::kCPU, at::kDouble);
  std::map<std::string, std::vector<at::Tensor>> values;
  for (std::int64_t t = 0; t < rates.numel(); ++t) {
    for (const NamedParameter& parameter : optimizer.parameters())
      parameter.tensor.mutable_grad() = run.input("grads." + parameter.name)[t].detach().clone();
    optimizer.step(rates[t].item<double>());
    for (const NamedParameter& parameter : optimizer.parameters())
      values["params." + parameter.name].push_back(parameter.tensor.detach().clone());
    after_step();
  }
  Outputs out = optimizer.state();
  out.erase("step");
  for (const auto& [name, steps] : values) out[name] = at::stack(steps);
  for (std::size_t i = 0; i < optimizer.parameters().size(); ++i)
    out["weight_decay." + optimizer.parameters()[i].name] = at::scalar_tensor(optimizer.weight_decay(i));
  return out;
}

Outputs run_adamw(Run& run) {
  AdamW optimizer(parameters_of(run), config::read<AdamWSettings>(run.settings(), ""));
  return play(run, optimizer, [] {});
}

Outputs run_muon(Run& run) {
  Muon optimizer(parameters_of(run), config::read<MuonSettings>(run.settings(), ""));
  return play(run, optimizer, [] {});
}

Outputs run_lamb(Run& run) {
  Lamb optimizer(parameters_of(run), config::read<LambSettings>(run.settings(), ""));
  std::vector<at::Tensor> norms;
  std::map<std::string, std::vector<at::Tensor>> ratios;
  Outputs out = play(run, optimizer, [&] {
    norms.push_back(optimizer.last_grad_norm());
    for (std::size_t i = 0; i < optimizer.parameters().size(); ++i)
      ratios["trust_ratio." + optimizer.parameters()[i].name].push_back(optimizer.last_trust_ratios()[i]);
  });
  out["grad_norm"] = at::stack(norms);
  for (const auto& [name, steps] : ratios) out[name] = at::stack(steps);
  return out;
}

Outputs run_lr_schedule(Run& run) {
  const auto settings = config::read<LrScheduleCase>(run.settings(), "");
  const at::Tensor steps = run.input("steps").to(at::kCPU, at::kLong);
  at::Tensor rates = at::empty_like(steps, at::kDouble);
  for (std::int64_t i = 0; i < steps.numel(); ++i)
    rates[i] = learning_rate_at(steps[i].item<std::int64_t>(), settings.shape, settings.lr, settings.total_steps);
  return {{"lr", rates.to(at::kFloat)}};
}

Outputs run_cosine_schedule(Run& run) {
  const auto settings = config::read<CosineScheduleCase>(run.settings(), "");
  const ScheduleSettings shape{.min_lr = settings.final_value,
                               .warmup_steps = settings.warmup_epochs * settings.steps_per_epoch,
                               .warmup_lr = settings.start_warmup_value};
  const at::Tensor steps = run.input("step").to(at::kCPU);
  at::Tensor values = at::empty_like(steps, at::kDouble);
  for (std::int64_t i = 0; i < steps.numel(); ++i)
    values[i] = learning_rate_at(steps[i].item<std::int64_t>(), shape, settings.base_value,
                                 settings.epochs * settings.steps_per_epoch);
  return {{"value", values.to(at::kFloat)}};
}

Outputs run_ema_update(Run& run) {
  const auto settings = config::read<EmaCase>(run.settings(), "");
  const double momentum =
      half_cosine(run.input("step").item<std::int64_t>(), settings.epochs * settings.steps_per_epoch,
                  settings.base_value, settings.final_value);
  Ema ema({{"weight", run.input("student")}}, EmaSettings{});
  ema.load({{"weight", run.input("teacher")}}, run.path());
  ema.update_with(momentum);
  return {{"teacher", ema.averages().at("weight")}, {"momentum", at::scalar_tensor(momentum)}};
}

Outputs run_gradient_clip_per_parameter(Run& run) {
  const auto settings = config::read<ClipPerParameterCase>(run.settings(), "");
  std::vector<at::Tensor> gradients;
  std::vector<std::size_t> each_alone;
  const auto name_of = [](std::size_t i) { return concat("grad_", i); };  // looked up by number, so that grad_9 comes before grad_10
  while (run.has(name_of(gradients.size()))) {
    each_alone.push_back(gradients.size());
    gradients.push_back(run.input(name_of(gradients.size())).detach().clone());
  }
  const GradientNorms norms =
      clip_grad_norm(gradients, settings.max_norm, each_alone, gradients.size(), ClipMode::per_tensor);
  Outputs out{{"norms", at::stack(norms.groups)}};
  for (std::size_t i = 0; i < gradients.size(); ++i) out["clipped_" + name_of(i)] = gradients[i];
  return out;
}

Outputs run_clip_grad_norm(Run& run) {
  const auto settings = config::read<ClipCase>(run.settings(), "");
  std::vector<std::string> names;
  std::vector<at::Tensor> gradients;
  for (const auto& [name, gradient] : run.inputs()) {
    names.push_back(name);
    gradients.push_back(gradient.detach().clone());
  }
  Outputs out{{"total_norm", clip_grad_norm(gradients, settings.max_norm)}};
  for (std::size_t i = 0; i < names.size(); ++i) out["clipped." + names[i]] = gradients[i];
  return out;
}

}  // namespace

void add_training_runners(Runners& runners) {
  runners.add("adamw", run_adamw);
  runners.add("lamb", run_lamb);
  runners.add("muon", run_muon);
  runners.add("lr_schedule", run_lr_schedule);
  runners.add("clip_grad_norm", run_clip_grad_norm);
  runners.add("cosine_schedule", run_cosine_schedule);
  runners.add("ema_update", run_ema_update);
  runners.add("gradient_clip_per_parameter", run_gradient_clip_per_parameter);
}

}  // namespace tessera::probe
