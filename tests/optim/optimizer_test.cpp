#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/adamw/adamw.h"
#include "src/optim/adamw.h"
#include "src/optim/clip_grad_norm.h"
#include "src/optim/grad_norm_groups.h"
#include "src/optim/lamb.h"
#include "src/optim/lion.h"
#include "src/optim/muon.h"
#include "src/optim/sgd.h"
#include "src/optim/stochastic_rounding.h"
#include "tests/reference/compare.h"
#include "tests/support/test_data.h"
#include <tessera/base/error.h>
#include <tessera/optim/schedule.h>

namespace tessera {
namespace {

TEST(OptimizerGolden, EveryReferenceCaseAgrees) {
  auto files = probe::case_files(test_data("golden/optim"));
  ASSERT_EQ(files.size(), 16u);
  for (const char* name :
       {"cosine_schedule_learning_rate", "cosine_schedule_momentum", "ema_update", "gradient_clip_per_parameter"})
    files.push_back(test_data(std::string("golden/sparo/") + name + ".safetensors"));
  for (const std::string& file : files) {
    const probe::CaseReport report = probe::run_file(file, probe::core_runners());
    EXPECT_TRUE(report.agrees()) << probe::format_table(report);
  }
}

NamedParameter parameter(const std::string& name, at::IntArrayRef shape, double start = 1.0) {
  return {name, at::full(shape, start).set_requires_grad(true)};
}

void set_gradients(const Optimizer& optimizer, double value) {
  for (const NamedParameter& p : optimizer.parameters()) p.tensor.mutable_grad() = at::full_like(p.tensor, value);
}

TEST(WeightDecay, SparesVectorsAndListedNamesOnly) {
  const DecaySettings settings;
  EXPECT_TRUE(decays(parameter("visual.proj", {2, 2}), settings));
  EXPECT_FALSE(decays(parameter("visual.proj", {4}), settings));
  EXPECT_FALSE(decays(parameter("a.positional_embedding", {2, 2}), settings));
  EXPECT_TRUE(decays(parameter("a.Norm.weight", {2, 2}), settings)) << "names are case-sensitive";
  const DecaySettings none{.no_decay = {}};
  EXPECT_TRUE(decays(parameter("a.bias", {2, 2}), none));
  EXPECT_FALSE(decays(parameter("a.bias", {2}), none)) << "vectors are spared for every list";
}

TEST(Optimizer, SkipsAParameterWithoutAGradient) {
  AdamW optimizer({parameter("a", {2, 2}), parameter("b", {2, 2})}, {});
  optimizer.parameters()[0].tensor.mutable_grad() = at::ones({2, 2});
  optimizer.step(0.1);
  EXPECT_FALSE(at::equal(optimizer.parameters()[0].tensor, at::ones({2, 2})));
  EXPECT_TRUE(at::equal(optimizer.parameters()[1].tensor, at::ones({2, 2})));
}

TEST(Optimizer, UpdateDoesNotDependOnTheMemoryLayoutOfTheGradient) {
  const at::Tensor gradient = at::arange(6, at::kFloat).reshape({2, 3});
  AdamW plain({parameter("a", {2, 3})}, {}), transposed({parameter("a", {2, 3})}, {});
  plain.parameters()[0].tensor.mutable_grad() = gradient;
  transposed.parameters()[0].tensor.mutable_grad() = gradient.t().contiguous().t();
  plain.step(0.1);
  transposed.step(0.1);
  EXPECT_TRUE(at::equal(plain.parameters()[0].tensor, transposed.parameters()[0].tensor));
}

template <class Made>
void expect_resume_is_exact(const std::function<std::unique_ptr<Made>()>& make) {
  auto unbroken = make(), first = make(), second = make();
  for (int t = 0; t < 4; ++t) {
    Optimizer& half = t < 2 ? *first : *second;
    if (t == 2) {
      second->load_state(first->state(), "test");
      for (std::size_t i = 0; i < first->parameters().size(); ++i) {
        const at::NoGradGuard no_grad;
        second->parameters()[i].tensor.copy_(first->parameters()[i].tensor);
      }
    }
    set_gradients(*unbroken, 0.5 + t);
    set_gradients(half, 0.5 + t);
    const double weight_decay = 0.1 * (t + 1);
    unbroken->step(0.1, weight_decay);
    half.step(0.1, weight_decay);
  }
  for (std::size_t i = 0; i < unbroken->parameters().size(); ++i)
    EXPECT_TRUE(at::equal(unbroken->parameters()[i].tensor, second->parameters()[i].tensor));
  EXPECT_EQ(second->steps_taken(), 4);
}

TEST(Optimizer, ResumesBitForBit) {
  const auto parameters = [] {
    std::vector<NamedParameter> out{parameter("a", {3, 2}), parameter("b", {3}, 0.5), parameter("late", {2, 2})};
    out.back().frozen_steps = 3;
    return out;
  };
  expect_resume_is_exact<AdamW>([&] { return std::make_unique<AdamW>(parameters(), AdamWSettings{}); });
  expect_resume_is_exact<Lamb>([&] { return std::make_unique<Lamb>(parameters(), LambSettings{}); });
  expect_resume_is_exact<Sgd>([&] { return std::make_unique<Sgd>(parameters(), SgdSettings{}); });
  AdamWSettings clipping;
  clipping.update_clipping = true;
  expect_resume_is_exact<AdamW>([&] { return std::make_unique<AdamW>(parameters(), clipping); });
  expect_resume_is_exact<Lion>([&] { return std::make_unique<Lion>(parameters(), LionSettings{}); });
  expect_resume_is_exact<Muon>([&] { return std::make_unique<Muon>(parameters(), MuonSettings{.adamw_lr = 1e-3}); });
}

template <class Made, class Settings>
std::unique_ptr<Made> rounding(std::vector<NamedParameter> parameters, const Settings& settings, std::uint64_t seed = 5) {
  auto out = std::make_unique<Made>(std::move(parameters), settings);
  out->round_moments(seed);
  return out;
}

TEST(RoundedMoments, ResumeBitForBit) {
  const auto parameters = [] { return std::vector{parameter("a", {3, 2}), parameter("b", {3}, 0.5), parameter("c", {})}; };
  expect_resume_is_exact<AdamW>([&] { return rounding<AdamW>(parameters(), AdamWSettings{}); });
  expect_resume_is_exact<Lamb>([&] { return rounding<Lamb>(parameters(), LambSettings{}); });
  expect_resume_is_exact<Sgd>([&] { return rounding<Sgd>(parameters(), SgdSettings{}); });
  expect_resume_is_exact<Lion>([&] { return rounding<Lion>(parameters(), LionSettings{}); });
  expect_resume_is_exact<Muon>([&] { return rounding<Muon>(parameters(), MuonSettings{}); });
}

// The second moment grows by 2 % of the squared gradient at first, and later by a share of itself that is far below the distance of two
// bfloat16 values (1/256 to 1/128). Rounding to nearest would stop it at a fraction of its limit.
TEST(RoundedMoments, FollowMomentsInFloat32OnAverage) {
  AdamWSettings settings;
  settings.betas = {0.9, 0.999};
  AdamW exact({parameter("a", {64, 64})}, settings);
  const auto rounded = rounding<AdamW>({parameter("a", {64, 64})}, settings);
  for (int t = 0; t < 600; ++t) {
    set_gradients(exact, 0.5);
    set_gradients(*rounded, 0.5);
    exact.step(0.0);
    rounded->step(0.0);
  }
  for (const char* name : {"exp_avg.a", "exp_avg_sq.a"}) {
    const at::Tensor got = rounded->state().at(name), wanted = exact.state().at(name);
    EXPECT_EQ(got.scalar_type(), at::kBFloat16);
    const double mean = wanted.mean().item<double>();
    EXPECT_NEAR(got.to(at::kFloat).mean().item<double>(), mean, 2e-3 * mean) << name;
  }
}

TEST(RoundedMoments, DependOnSeedStepParameterAndMoment) {
  const auto after = [](std::uint64_t seed, int steps) {
    const auto optimizer = rounding<AdamW>({parameter("a", {400}), parameter("b", {400})}, AdamWSettings{.betas = {0.9, 0.9}}, seed);
    for (int t = 0; t < steps; ++t) {
      set_gradients(*optimizer, 1.01);
      optimizer->step(0.0);
    }
    return optimizer->state();
  };
  const auto state = after(1, 1), again = after(1, 1), other = after(2, 1), later = after(1, 2);
  for (const auto& [name, tensor] : state) {
    EXPECT_TRUE(at::equal(tensor, again.at(name))) << name;
    EXPECT_EQ(at::equal(tensor, other.at(name)), name == "step") << name;
  }
  const auto up = [](const at::Tensor& moment) { return moment > moment.min(); };
  EXPECT_FALSE(at::equal(state.at("exp_avg.a"), state.at("exp_avg.b")));
  EXPECT_FALSE(at::equal(up(state.at("exp_avg.a")), up(state.at("exp_avg_sq.a"))));
  EXPECT_FALSE(at::equal(up(state.at("exp_avg.a")), up(later.at("exp_avg.a"))));
}

TEST(RoundStochastically, RoundsUpAsOftenAsTheValueIsAbove) {
  const at::Tensor values = at::tensor({1.0, 1.0 + 1.0 / 512, -(1.0 + 3.0 / 512), 3e-39, 0.0}, at::kFloat);
  const std::int64_t count = 20000;
  const at::Tensor from = values.repeat({count, 1}).t(), to = at::empty_like(from, at::kBFloat16);  // not contiguous
  round_stochastically(from, to, 3);
  const at::Tensor mean = to.to(at::kDouble).mean(1);
  EXPECT_TRUE((to[0] == 1).all().item<bool>()) << "a value of bfloat16 stays";
  EXPECT_TRUE(at::logical_or(to[1] == 1.0, to[1] == 1.0 + 1.0 / 128).all().item<bool>());
  for (const std::int64_t i : {1, 2}) EXPECT_NEAR(mean[i].item<double>(), values[i].item<double>(), 4.0 / 128 / std::sqrt(count)) << i;
  EXPECT_NEAR(mean[3].item<double>(), 3e-39, 5e-42);
  EXPECT_TRUE((to[4] == 0).all().item<bool>());
  const double inf = std::numeric_limits<double>::infinity();
  const at::Tensor limits = at::tensor({inf, -inf, std::numeric_limits<double>::quiet_NaN()}, at::kFloat), rounded = at::empty({3}, at::kBFloat16);
  round_stochastically(limits, rounded, 3);
  EXPECT_TRUE(at::equal(rounded.narrow(0, 0, 2).to(at::kFloat), limits.narrow(0, 0, 2)));
  EXPECT_TRUE(rounded[2].isnan().item<bool>());
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Optimizer, ErrorsNameAStateThatDoesNotFit) {
  AdamW optimizer({parameter("a", {2, 2})}, {});
  auto state = optimizer.state();
  state["exp_avg.a"] = at::zeros({3, 2});
  EXPECT_EQ(error_of([&] { optimizer.load_state(state, "f"); }),
            "f: the optimizer's exp_avg.a has shape [3, 2], expected [2, 2]");
  state = optimizer.state();
  state.erase("exp_avg_sq.a");
  EXPECT_EQ(error_of([&] { optimizer.load_state(state, "f"); }), "f: the optimizer's state lacks exp_avg_sq.a");
  state = optimizer.state();
  state["exp_avg.b"] = at::zeros({1});
  EXPECT_EQ(error_of([&] { optimizer.load_state(state, "f"); }),
            "f: the optimizer's state holds exp_avg.b, which no parameter here has");
  EXPECT_EQ(error_of([&] {
              AdamW({parameter("a", {1}), parameter("a", {1})}, {});
            }),
            "optimizer: two parameters are named a");
}

TEST(Optimizer, LoadsAStateFromPartsInAnyOrderOfElements) {
  const at::Tensor transposed = at::zeros({3, 4}).t().set_requires_grad(true);
  AdamW optimizer({{"a", transposed}, parameter("b", {5})}, {});
  const at::Tensor a = at::randn({4, 3}), b = at::randn({5});
  const auto part = [&](std::int64_t begin, std::int64_t end, std::int64_t b_begin, std::int64_t b_end) {
    StatePart out;
    for (const char* moment : {"exp_avg.", "exp_avg_sq."}) {
      out.places[std::string(moment) + "a"] = {{4, 3}, {3, 1}, begin, end};
      out.places[std::string(moment) + "b"] = {{5}, {1}, b_begin, b_end};
    }
    out.read = [=] {
      std::map<std::string, at::Tensor> read;
      for (const char* moment : {"exp_avg.", "exp_avg_sq."}) {
        read[std::string(moment) + "a"] = a.flatten().slice(0, begin, end);
        read[std::string(moment) + "b"] = b.slice(0, b_begin, b_end);
      }
      return read;
    };
    return out;
  };
  optimizer.load_state({part(7, 12, 0, 2), part(0, 7, 2, 5)}, 9, "f");
  EXPECT_EQ(optimizer.steps_taken(), 9);
  EXPECT_TRUE(at::equal(optimizer.state().at("exp_avg.a"), a));
  EXPECT_TRUE(at::equal(optimizer.state().at("exp_avg_sq.b"), b));
  EXPECT_EQ(error_of([&] { optimizer.load_state({part(7, 12, 0, 5), part(0, 5, 0, 0)}, 9, "f"); }), "f: the optimizer's state lacks elements of exp_avg.a");
  StatePart wrong = part(0, 12, 0, 5);
  wrong.read = [] { return std::map<std::string, at::Tensor>{}; };
  EXPECT_EQ(error_of([&] { optimizer.load_state({wrong}, 9, "f"); }),
            "f: damaged: the elements of the optimizer's exp_avg.a are not those that its description names");
}

TEST(Lamb, TrustClipCapsTheRatioAndAlwaysAdaptIncludesVectors) {
  LambSettings settings;
  settings.max_grad_norm = std::nullopt;
  settings.trust_clip = true;
  Lamb clipped({parameter("w", {2, 2}, 100.0), parameter("bias", {2}, 100.0)}, settings);
  set_gradients(clipped, 0.1);
  clipped.step(0.0);
  EXPECT_EQ(clipped.last_trust_ratios()[0].item<double>(), 1.0);
  settings.trust_clip = false;
  settings.always_adapt = true;
  Lamb adapted({parameter("w", {2, 2}, 100.0), parameter("bias", {2}, 100.0)}, settings);
  set_gradients(adapted, 0.1);
  adapted.step(0.0);
  EXPECT_GT(adapted.last_trust_ratios()[0].item<double>(), 10.0);
  EXPECT_GT(adapted.last_trust_ratios()[1].item<double>(), 10.0);
}

TEST(Lamb, WithoutGradientAveragingTheFirstMomentAddsTheWholeGradient) {
  LambSettings settings;
  settings.max_grad_norm = std::nullopt;
  settings.grad_averaging = false;
  Lamb optimizer({parameter("w", {2, 2})}, settings);
  set_gradients(optimizer, 0.25);
  optimizer.step(0.1);
  EXPECT_TRUE(at::allclose(optimizer.state().at("exp_avg.w"), at::full({2, 2}, 0.25)));
}

TEST(Optimizer, LearningRateOfAParameterIsScaled) {
  const auto moved = [](double scale, double rate) {
    NamedParameter p = parameter("a", {2, 2});
    p.lr_scale = scale;
    AdamW optimizer({p, parameter("b", {2, 2})}, {});
    set_gradients(optimizer, 0.5);
    optimizer.step(rate);
    return optimizer.parameters()[0].tensor.detach().clone();
  };
  EXPECT_TRUE(at::equal(moved(0.25, 0.4), moved(1.0, 0.1)));
  EXPECT_TRUE(at::equal(moved(0.0, 0.4), at::ones({2, 2})));
}

// Computes the recurrence of torch.optim.SGD in double.
double sgd_after(const std::vector<double>& gradients, double rate, const SgdSettings& s) {
  double p = 1.0, buffer = 0.0;
  for (std::size_t t = 0; t < gradients.size(); ++t) {
    const double g = gradients[t] + s.decay.weight_decay * p;
    buffer = s.momentum * buffer + g;
    p -= rate * (s.nesterov ? g + s.momentum * buffer : buffer);
  }
  return p;
}

TEST(Sgd, FollowsTorchsRecurrence) {
  const std::vector<double> gradients{0.5, -1.0, 2.0};
  for (const double momentum : {0.0, 0.9})
    for (const bool nesterov : {false, true}) {
      if (nesterov && momentum == 0) continue;
      const SgdSettings settings{
          .momentum = momentum, .nesterov = nesterov, .decay = {.weight_decay = 0.1, .no_decay = {}}};
      Sgd optimizer({parameter("a", {2, 2})}, settings);
      for (const double gradient : gradients) {
        set_gradients(optimizer, gradient);
        optimizer.step(0.1);
      }
      EXPECT_NEAR(optimizer.parameters()[0].tensor[0][0].item<double>(), sgd_after(gradients, 0.1, settings), 1e-6);
      EXPECT_EQ(optimizer.state().size(), momentum > 0 ? 2u : 1u) << "without momentum there is no buffer";
    }
  EXPECT_TRUE(validate(SgdSettings{.momentum = 0.0, .nesterov = true}).has_value());
}

// The inputs of a sequence of updates to one tensor with four equal elements. The functions below compute the updates by hand in double.
// The tensor is frozen until update `first`: earlier updates do not change it, and bias corrections count updates from `first` on.
struct Updates {
  std::vector<double> gradients, rates, decays;
  std::size_t first = 0;
};

double adamw_by_hand(const Updates& u, const AdamWSettings& s) {
  double p = 1.0, m = 0.0, v = 0.0;
  for (std::size_t t = u.first; t < u.gradients.size(); ++t) {
    const double g = u.gradients[t], count = static_cast<double>(t - u.first + 1);
    p -= u.rates[t] * u.decays[t] * p;
    m = s.betas[0] * m + (1 - s.betas[0]) * g;
    v = s.betas[1] * v + (1 - s.betas[1]) * g * g;
    p -= u.rates[t] * (m / (1 - std::pow(s.betas[0], count))) /
         (std::sqrt(v / (1 - std::pow(s.betas[1], count))) + s.eps);
  }
  return p;
}

double lamb_by_hand(const Updates& u, const LambSettings& s) {
  double p = 1.0, m = 0.0, v = 0.0;
  for (std::size_t t = u.first; t < u.gradients.size(); ++t) {
    const double g = u.gradients[t], count = static_cast<double>(t - u.first + 1);
    m = s.betas[0] * m + (1 - s.betas[0]) * g;
    v = s.betas[1] * v + (1 - s.betas[1]) * g * g;
    const double update =
        (m / (1 - std::pow(s.betas[0], count))) / (std::sqrt(v / (1 - std::pow(s.betas[1], count))) + s.eps) +
        u.decays[t] * p;
    p -= u.rates[t] * std::abs(p) / std::abs(update) * update;  // the norms of four equal elements are 2 |p| and 2 |update|; the 2 cancels
  }
  return p;
}

double sgd_by_hand(const Updates& u, const SgdSettings& s) {
  double p = 1.0, buffer = 0.0;
  for (std::size_t t = u.first; t < u.gradients.size(); ++t) {
    buffer = s.momentum * buffer + u.gradients[t] + u.decays[t] * p;
    p -= u.rates[t] * buffer;
  }
  return p;
}

double lion_by_hand(const Updates& u, const LionSettings& s) {
  double p = 1.0, m = 0.0;
  for (std::size_t t = u.first; t < u.gradients.size(); ++t) {
    const double g = u.gradients[t], direction = s.betas[0] * m + (1 - s.betas[0]) * g;
    p -= u.rates[t] * ((direction > 0) - (direction < 0) + u.decays[t] * p);
    m = s.betas[1] * m + (1 - s.betas[1]) * g;
  }
  return p;
}

template <class Made, class Settings>
void expect_updates_by_hand(Settings settings, double (*by_hand)(const Updates&, const Settings&)) {
  settings.decay = {.weight_decay = 9.0};  // the value passed to step() overrides this
  Updates updates{{0.5, -1.0, 2.0, 0.25, 1.0}, {0.1, 0.2, 0.05, 0.1, 0.1}, {0.4, 0.3, 0.2, 0.1, 0.05}};
  NamedParameter late = parameter("late", {2, 2});
  late.frozen_steps = 2;
  Made optimizer({parameter("early", {2, 2}), late}, settings);
  for (std::size_t t = 0; t < updates.gradients.size(); ++t) {
    EXPECT_EQ(optimizer.frozen(1), t < 2) << t;
    set_gradients(optimizer, updates.gradients[t]);
    optimizer.step(updates.rates[t], updates.decays[t]);
    if (t < 2) {
      EXPECT_TRUE(at::equal(optimizer.parameters()[1].tensor, at::ones({2, 2}))) << t;
      for (const auto& [name, tensor] : optimizer.state())
        if (name.ends_with(".late")) {
          EXPECT_TRUE(at::equal(tensor, at::zeros({2, 2}))) << name;
        }
    }
  }
  for (std::size_t i = 0; i < 2; ++i) {
    updates.first = i == 0 ? 0 : 2;
    EXPECT_NEAR(optimizer.parameters()[i].tensor[1][0].template item<double>(), by_hand(updates, settings), 5e-6) << i;
  }
}

TEST(UpdateRates, WeightDecayAndFrozenStepsMatchALoopByHand) {
  expect_updates_by_hand<AdamW, AdamWSettings>({}, adamw_by_hand);
  expect_updates_by_hand<Sgd, SgdSettings>({}, sgd_by_hand);
  expect_updates_by_hand<Lion, LionSettings>({}, lion_by_hand);
  expect_updates_by_hand<Lion, LionSettings>({.betas = {0.5, 0.7}}, lion_by_hand);
  LambSettings lamb;
  lamb.max_grad_norm = std::nullopt;
  expect_updates_by_hand<Lamb, LambSettings>(lamb, lamb_by_hand);
}

// The host does not know of the skipped steps, so parameters are still frozen after `frozen_steps` calls of step().
template <class Made, class Settings>
void expect_skipped_steps_do_not_count(const Settings& settings) {
  const auto after = [&](const std::vector<double>& found_inf) {
    NamedParameter late = parameter("late", {2, 2});
    late.frozen_steps = 2;
    Made optimizer({parameter("early", {2, 2}), late}, settings);
    for (const double each : found_inf) {
      set_gradients(optimizer, each > 0 ? NAN : 0.5);
      optimizer.step(0.1, {}, at::full({}, each));
    }
    return at::stack({optimizer.parameters()[0].tensor.detach(), optimizer.parameters()[1].tensor.detach()});
  };
  const at::Tensor frozen = after({0, 0}), updated = after({0, 0, 0});
  EXPECT_TRUE(at::equal(frozen[1], at::ones({2, 2})));
  EXPECT_FALSE(at::equal(updated[1], at::ones({2, 2})));
  EXPECT_TRUE(at::equal(after({0, 1, 0}), frozen));
  EXPECT_TRUE(at::equal(after({0, 1, 1, 0, 0}), updated));
  EXPECT_TRUE(at::equal(after({1, 1, 1, 0, 0, 0}), updated));
}

TEST(UpdateRates, SkippedStepsDoNotCountAsFrozenSteps) {
  expect_skipped_steps_do_not_count<AdamW>(AdamWSettings{});
  expect_skipped_steps_do_not_count<AdamW>(AdamWSettings{.update_clipping = true});
  expect_skipped_steps_do_not_count<Sgd>(SgdSettings{});
  expect_skipped_steps_do_not_count<Lion>(LionSettings{});
  expect_skipped_steps_do_not_count<Muon>(MuonSettings{});
  LambSettings lamb;
  lamb.max_grad_norm = std::nullopt;
  expect_skipped_steps_do_not_count<Lamb>(lamb);
}

TEST(UpdateRates, NormsIgnoreFrozenGradients) {
  NamedParameter late = parameter("visual.late", {4}), early = parameter("visual.early", {4});
  late.frozen_steps = 1;
  Lamb optimizer({late, early}, {});
  const GradNormGroups groups = grad_norm_groups(optimizer);
  set_gradients(optimizer, 0.5);
  EXPECT_NEAR(clip_gradients(optimizer, groups, std::nullopt).global.item<double>(), 1.0, 1e-6);
  optimizer.step(0.1);
  EXPECT_NEAR(optimizer.last_grad_norm().item<double>(), 1.0, 1e-6);
  EXPECT_NEAR(clip_gradients(optimizer, groups, std::nullopt).groups[0].item<double>(), std::sqrt(2.0), 1e-6);
}

TEST(Lion, AGradientOfZeroLeavesTheDirectionToTheMoment) {
  Lion optimizer({parameter("a", {2, 2})}, {.betas = {0.9, 0.5}, .decay = {.weight_decay = 0.0}});
  set_gradients(optimizer, -2.0);
  optimizer.step(0.25);
  set_gradients(optimizer, 0.0);
  optimizer.step(0.25);
  EXPECT_TRUE(at::equal(optimizer.parameters()[0].tensor, at::full({2, 2}, 1.5)));
}

// The iteration is a polynomial of odd powers, so it acts on the singular values alone.
at::Tensor orthogonalized_by_svd(const at::Tensor& matrix, std::int64_t steps) {
  const auto [u, s, v] = at::linalg_svd(matrix, /*full_matrices=*/false);
  at::Tensor x = s / s.square().sum().sqrt();
  for (std::int64_t i = 0; i < steps; ++i) x = 3.4445 * x - 4.775 * x.pow(3) + 2.0315 * x.pow(5);
  return u.matmul(at::diag(x)).matmul(v);
}

TEST(Muon, IterationActsOnSingularValues) {
  at::manual_seed(2);
  for (const auto& [rows, columns] : std::vector<std::pair<std::int64_t, std::int64_t>>{{6, 6}, {12, 5}, {5, 12}, {1, 7}}) {
    const at::Tensor matrix = at::randn({rows, columns}, at::kDouble);
    for (const std::int64_t steps : {1, 5}) {
      const at::Tensor expected = orthogonalized_by_svd(matrix, steps);
      EXPECT_TRUE(at::allclose(orthogonalized(matrix, steps, at::kDouble), expected, 1e-9, 1e-9)) << rows;
      EXPECT_TRUE(at::allclose(orthogonalized(matrix.to(at::kFloat), steps, at::kFloat).to(at::kDouble), expected, 1e-4, 1e-4)) << rows;
      const at::Tensor low = orthogonalized(matrix.to(at::kFloat), steps, at::kBFloat16);
      EXPECT_EQ(low.scalar_type(), at::kBFloat16);
      EXPECT_LT((low.to(at::kDouble) - expected).norm().item<double>(), 0.04 * expected.norm().item<double>()) << rows;
    }
  }
  EXPECT_TRUE(at::equal(orthogonalized(at::zeros({3, 4}), 5, at::kBFloat16), at::zeros({3, 4}, at::kBFloat16)));
}

// Five updates in float64, written by the formulas of torch.optim.Muon's documentation with the moment as an average.
TEST(Muon, MatchesAReferenceInFloat64) {
  for (const bool nesterov : {true, false})
    for (const char* rule : {"original", "match_rms_adamw"}) {
      at::manual_seed(3);
      MuonSettings settings{.momentum = 0.8, .nesterov = nesterov, .ns_type = "float32", .adjust_lr_fn = rule};
      std::vector<NamedParameter> parameters;
      std::vector<at::Tensor> expected, moments;
      for (const auto& [rows, columns] : std::vector<std::pair<std::int64_t, std::int64_t>>{{9, 4}, {4, 9}}) {
        expected.push_back(at::randn({rows, columns}, at::kDouble));
        moments.push_back(at::zeros_like(expected.back()));
        parameters.push_back({columns == 4 ? "mlp.c_fc.weight" : "mlp.c_proj.weight", expected.back().to(at::kFloat).set_requires_grad(true)});
      }
      Muon optimizer(parameters, settings);
      for (int t = 0; t < 5; ++t) {
        const double rate = 0.1 / (t + 1), decay = 0.3;
        for (std::size_t i = 0; i < 2; ++i) {
          const at::Tensor gradient = at::randn_like(expected[i]);
          optimizer.parameters()[i].tensor.mutable_grad() = gradient.to(at::kFloat);
          moments[i] = 0.8 * moments[i] + 0.2 * gradient;
          const at::Tensor direction = nesterov ? 0.2 * gradient + 0.8 * moments[i] : moments[i];
          const double factor = std::string(rule) == "original" ? (i == 0 ? 1.5 : 1.0) : 0.2 * 3;
          expected[i] = (1 - rate * decay) * expected[i] - rate * factor * orthogonalized_by_svd(direction, 5);
        }
        optimizer.step(rate, decay);
        for (std::size_t i = 0; i < 2; ++i)
          EXPECT_TRUE(at::allclose(optimizer.parameters()[i].tensor.to(at::kDouble), expected[i], 1e-4, 1e-4)) << rule << t << i;
      }
    }
}

TEST(Muon, OnlyMatricesWithinTheTowersHaveOneMoment) {
  const Muon optimizer({parameter("visual.conv1.weight", {4, 3, 2, 2}), parameter("visual.proj", {4, 2}), parameter("token_embedding.weight", {9, 4}),
                        parameter("positional_embedding", {5, 4}), parameter("transformer.resblocks.0.attn.out_proj.weight", {4, 4}),
                        parameter("transformer.resblocks.0.attn.in_proj_bias", {12}), parameter("objective.head.weight", {3, 4}),
                        parameter("visual.transformer.resblocks.0.mlp.c_proj.weight", {4, 8}), parameter("logit_scale", {})},
                       {});
  std::vector<std::string> without;
  for (const NamedParameter& each : optimizer.parameters()) {
    EXPECT_TRUE(optimizer.state().contains("exp_avg." + each.name));
    if (!optimizer.state().contains("exp_avg_sq." + each.name)) without.push_back(each.name);
  }
  EXPECT_EQ(without, (std::vector<std::string>{"transformer.resblocks.0.attn.out_proj.weight", "visual.transformer.resblocks.0.mlp.c_proj.weight"}));
  const Muon of_image({parameter("visual.blocks.weight", {4, 4}), parameter("blocks.weight", {4, 4})}, {.adamw_for = {"text"}});
  EXPECT_EQ(of_image.state().size(), 4u);
  EXPECT_FALSE(of_image.state().contains("exp_avg_sq.visual.blocks.weight"));
}

TEST(Muon, UpdatesOtherParametersAsAdamWDoesWithItsOwnRate) {
  Muon muon({parameter("bias", {3}), parameter("w", {3, 3})}, {.lr = 0.1, .adamw_lr = 0.02});
  AdamW adamw({parameter("bias", {3})}, {});
  for (int t = 0; t < 3; ++t) {
    set_gradients(muon, 0.5 + t);
    set_gradients(adamw, 0.5 + t);
    muon.step(0.1 / (t + 1));
    adamw.step(0.02 / (t + 1));
  }
  EXPECT_TRUE(at::allclose(muon.parameters()[0].tensor, adamw.parameters()[0].tensor, 1e-6, 1e-7));
  EXPECT_EQ(validate(MuonSettings{.lr = 0, .adamw_lr = 0.1})->key, "adamw_lr");
}

// Computes algorithm 2 of StableAdamW in double, for a tensor of equal elements.
double stable_adamw_after(const std::vector<double>& gradients, double rate, const AdamWSettings& s) {
  double p = 1.0, m = 0.0, v = 0.0;
  for (std::size_t t = 1; t <= gradients.size(); ++t) {
    const double g = gradients[t - 1], steps = static_cast<double>(t);
    m = s.betas[0] * m + (1 - s.betas[0]) * g;
    v = s.betas[1] * v + (1 - s.betas[1]) * g * g;
    const double m_hat = m / (1 - std::pow(s.betas[0], steps)), v_hat = v / (1 - std::pow(s.betas[1], steps));
    const double rms = std::sqrt(g * g / std::max(v_hat, s.eps * s.eps));
    const double clipped = rate / std::max(1.0, rms);
    p -= clipped * s.decay.weight_decay * p + clipped * m_hat / (std::sqrt(v_hat) + s.eps);
  }
  return p;
}

TEST(AdamW, UpdateClippingTakesSmallerStepsIfAGradientJumps) {
  AdamWSettings settings;
  settings.update_clipping = true;
  settings.decay.no_decay = {};
  const std::vector<double> jump{0.01, 0.01, 5.0, 0.01};
  AdamW clipped({parameter("a", {3, 2})}, settings);
  settings.update_clipping = false;
  AdamW plain({parameter("a", {3, 2})}, settings);
  for (const double gradient : jump) {
    set_gradients(clipped, gradient);
    set_gradients(plain, gradient);
    clipped.step(0.1);
    plain.step(0.1);
  }
  const double end = clipped.parameters()[0].tensor[2][1].item<double>();
  EXPECT_NEAR(end, stable_adamw_after(jump, 0.1, settings), 1e-5);
  EXPECT_GT(end - plain.parameters()[0].tensor[2][1].item<double>(), 0.01) << "clipping must reduce the effect of the jump";
}

TEST(LrSchedule, WarmUpAsAShareMatchesWarmUpInSteps) {
  const ScheduleSettings steps{.warmup_steps = 5}, share{.warmup_share = 0.25};
  for (std::int64_t t = 0; t < 20; ++t)
    EXPECT_DOUBLE_EQ(learning_rate_at(t, steps, 1.0, 20), learning_rate_at(t, share, 1.0, 20));
  EXPECT_TRUE(validate(ScheduleSettings{.warmup_steps = 5, .warmup_share = 0.25}).has_value());
}

// An update by the kernel (its emulation) and by LibTorch's operator, with clipping, skipped steps, a late parameter and a changing decay.
struct KernelRun {
  explicit KernelRun(bool kernel, double frozen = 1) {
    NamedParameter late = parameter("visual.late", {5, 3}), bias = parameter("bias", {7}, 0.5);
    late.frozen_steps = static_cast<std::int64_t>(frozen);
    bias.lr_scale = 0.5;
    optimizer = std::make_unique<AdamW>(std::vector{parameter("visual.w", {130, 70}), bias, late}, AdamWSettings{});
    if (kernel) optimizer->use_kernel(kernels::emulation::adamw_update);
    groups = grad_norm_groups(*optimizer);
  }
  void step(std::int64_t number, UpdateInputs inputs = {}) {
    at::manual_seed(static_cast<std::uint64_t>(number));
    for (const NamedParameter& p : optimizer->parameters()) p.tensor.mutable_grad() = at::randn_like(p.tensor);
    inputs.factor = clip_gradients(*optimizer, groups, 3.0).factor;
    optimizer->step(inputs);
  }
  UpdateInputs inputs_of(std::int64_t number) const {
    return {1e-2 * static_cast<double>(number + 1), 0.1 * static_cast<double>(number), at::full({}, number == 2 ? 1.0 : 0.0), {}, {}};
  }
  std::unique_ptr<AdamW> optimizer;
  GradNormGroups groups;
};

void expect_close_weights(const KernelRun& ours, const KernelRun& theirs, double tolerance) {
  for (std::size_t i = 0; i < ours.optimizer->parameters().size(); ++i)
    EXPECT_TRUE(at::allclose(ours.optimizer->parameters()[i].tensor, theirs.optimizer->parameters()[i].tensor, tolerance, tolerance)) << i;
  const auto our_state = ours.optimizer->state(), their_state = theirs.optimizer->state();
  for (const auto& [name, tensor] : their_state) EXPECT_TRUE(at::allclose(our_state.at(name), tensor, tolerance, tolerance)) << name;
}

TEST(AdamWKernel, UpdatesAsTheOperatorDoes) {
  KernelRun kernel(true), composed(false);
  EXPECT_TRUE(kernel.optimizer->applies_factor());
  EXPECT_FALSE(composed.optimizer->applies_factor());
  for (std::int64_t i = 0; i < 5; ++i) {
    kernel.step(i, kernel.inputs_of(i));
    composed.step(i, composed.inputs_of(i));
    expect_close_weights(kernel, composed, 2e-6);
  }
}

TEST(AdamWKernel, ReadsTheDevicesNumbers) {
  KernelRun host(true, 0), device(true, 0), composed(false, 0);
  EXPECT_TRUE(device.optimizer->can_be_recorded());
  EXPECT_FALSE(KernelRun(true).optimizer->can_be_recorded()) << "a parameter is frozen at first";
  for (std::int64_t i = 0; i < 4; ++i) {
    UpdateInputs inputs = host.inputs_of(i);
    host.step(i, inputs);
    inputs.numbers = at::tensor({inputs.learning_rate, *inputs.weight_decay, static_cast<double>(i + 1)}, at::kDouble);
    inputs.learning_rate = 9;  // ignored
    composed.step(i, inputs);
    device.step(i, inputs);
  }
  expect_close_weights(device, host, 0);
  expect_close_weights(composed, host, 2e-6);
}

TEST(AdamWKernel, ResumesBitForBit) {
  expect_resume_is_exact<AdamW>([] {
    auto out = std::make_unique<AdamW>(std::vector{parameter("a", {300, 2}), parameter("b", {3}, 0.5)}, AdamWSettings{});
    out->use_kernel(kernels::emulation::adamw_update);
    return out;
  });
}

TEST(AdamWKernel, ChangesTheVersionsOfWhatItUpdates) {
  KernelRun run(true);
  const auto version = [&](std::size_t i) { return run.optimizer->parameters()[i].tensor._version(); };
  const auto first = version(0), late = version(2);
  run.step(0, run.inputs_of(0));
  EXPECT_GT(version(0), first);
  EXPECT_EQ(version(2), late) << "frozen";
}

TEST(LrSchedule, WarmsUpFromZeroAndStaysAtTheFinalRate) {
  const ScheduleSettings linear{.schedule = "linear", .min_lr = 0.1, .warmup_steps = 2};
  EXPECT_DOUBLE_EQ(learning_rate_at(0, linear, 1.0, 6), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate_at(1, linear, 1.0, 6), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(4, linear, 1.0, 6), 0.55);
  EXPECT_DOUBLE_EQ(learning_rate_at(100, linear, 1.0, 6), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate_at(3, {.schedule = "cosine", .min_lr = 0.2, .warmup_steps = 3}, 1.0, 3), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate_at(100, {.schedule = "constant"}, 1.0, 6), 1.0);
}

// As in open_clip_train's const-cooldown, the rate at step e of n cooldown steps is end + (peak - end) (1 - e / n)^power.
TEST(LrSchedule, ConstantRateCoolsDownLikeOpenClip) {
  const ScheduleSettings settings{.schedule = "constant", .min_lr = 0.1, .warmup_steps = 5, .cooldown_share = 0.4, .cooldown_power = 2.0};
  for (std::int64_t t = 0; t < 20; ++t) {
    const double left = 1.0 - static_cast<double>(t - 12) / 8.0;
    const double expected = t < 5 ? static_cast<double>(t + 1) / 5.0 : t < 12 ? 1.0 : left * left * (1.0 - 0.1) + 0.1;
    EXPECT_DOUBLE_EQ(learning_rate_at(t, settings, 1.0, 20), expected) << t;
  }
  EXPECT_DOUBLE_EQ(learning_rate_at(30, settings, 1.0, 20), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate_at(19, {.schedule = "constant", .warmup_steps = 20, .cooldown_share = 1.0}, 1.0, 20), 1.0)
      << "warm-up takes precedence";
  EXPECT_EQ(validate(ScheduleSettings{.schedule = "cosine", .cooldown_share = 0.1})->key, "cooldown_share");
}

TEST(LrSchedule, WarmUpFromAGivenRateIncludesBothEnds) {
  const ScheduleSettings settings{.min_lr = 0.1, .warmup_steps = 5, .warmup_lr = 0.2};
  for (std::int64_t t = 0; t < 5; ++t)
    EXPECT_DOUBLE_EQ(learning_rate_at(t, settings, 1.0, 10), 0.2 + 0.2 * static_cast<double>(t)) << t;
  EXPECT_DOUBLE_EQ(learning_rate_at(5, settings, 1.0, 10), 1.0) << "the peak occurs twice";
  EXPECT_DOUBLE_EQ(learning_rate_at(0, {.warmup_steps = 1, .warmup_lr = 0.2}, 1.0, 10), 0.2);
}

TEST(LrSchedule, PartContinuesWhereThePreviousOneEnds) {
  for (const char* shape : {"cosine", "linear"}) {
    ScheduleSettings whole{.schedule = shape, .min_lr = 0.1, .warmup_steps = 30, .weight_decay_end = 0.4}, first = whole, last = whole;
    first.part = {0.0, 0.8};
    last.part = {0.8, 1.0};
    for (std::int64_t t = 0; t < 100; ++t) {
      const bool early = t < 80;
      EXPECT_DOUBLE_EQ(learning_rate_at(early ? t : t - 80, early ? first : last, 1.0, early ? 80 : 20),
                       learning_rate_at(t, whole, 1.0, 100)) << t;
      EXPECT_DOUBLE_EQ(weight_decay_at(early ? t : t - 80, early ? first : last, 0.04, early ? 80 : 20),
                       weight_decay_at(t, whole, 0.04, 100)) << t;
    }
    EXPECT_EQ(warmup_steps_of(first, 80), 30);
    EXPECT_EQ(warmup_steps_of(last, 20), 0);
  }
  EXPECT_EQ(validate(ScheduleSettings{.part = {0.5, 0.5}})->key, "part");
}

TEST(WeightDecaySchedule, IsHalfACosineOverTheWholeRun) {
  const ScheduleSettings settings{.schedule = "linear", .warmup_steps = 3, .weight_decay_end = 0.4};
  for (const std::int64_t t : {0, 1, 5, 9, 10, 100}) {
    const double x = std::min(1.0, static_cast<double>(t) / 10);
    EXPECT_DOUBLE_EQ(weight_decay_at(t, settings, 0.04, 10), 0.4 + 0.5 * (0.04 - 0.4) * (1 + std::cos(M_PI * x))) << t;
  }
  EXPECT_DOUBLE_EQ(weight_decay_at(0, settings, 0.04, 10), 0.04);
  EXPECT_DOUBLE_EQ(weight_decay_at(10, settings, 0.04, 10), 0.4);
  EXPECT_DOUBLE_EQ(weight_decay_at(7, {}, 0.04, 10), 0.04) << "without an end value it is constant";
}

TEST(ClipGradNorm, PerTensorClipsEachTensorSeparately) {
  std::vector<at::Tensor> gradients{at::full({2}, 3.0), at::full({2, 2}, 0.25), at::full({1}, 12.0)};
  std::vector<at::Tensor> expected;
  for (const at::Tensor& gradient : gradients) {
    expected.push_back(gradient.clone());
    clip_grad_norm({expected.back()}, 1.0);
  }
  const GradientNorms norms = clip_grad_norm(gradients, 1.0, {0, 0, 1}, 2, ClipMode::per_tensor);
  for (std::size_t i = 0; i < gradients.size(); ++i) EXPECT_TRUE(at::allclose(gradients[i], expected[i], 1e-6)) << i;
  EXPECT_TRUE(at::equal(gradients[1], at::full({2, 2}, 0.25))) << "its norm, 0.5, is below the limit";
  EXPECT_NEAR(norms.global.item<double>(), std::sqrt(18 + 0.25 + 144), 1e-5) << "norms are measured before clipping";
  EXPECT_NEAR(norms.groups[0].item<double>(), std::sqrt(18.25), 1e-5);
}

TEST(ClipGradNorm, WithoutALimitOnlyMeasures) {
  std::vector<at::Tensor> gradients{at::full({2}, 3.0), at::full({2}, 4.0)};
  EXPECT_NEAR(clip_grad_norm(gradients, std::nullopt).item<double>(), std::sqrt(50.0), 1e-5);
  EXPECT_TRUE(at::equal(gradients[0], at::full({2}, 3.0)));
  EXPECT_EQ(clip_grad_norm({}, 1.0).item<double>(), 0.0);
}

TEST(ClipGradNorm, GroupsAreMeasuredBeforeClipping) {
  std::vector<at::Tensor> gradients{at::full({2}, 3.0), at::full({2}, 4.0), at::full({1}, 12.0)};
  const GradientNorms norms = clip_grad_norm(gradients, 1.0, {0, 2, 0}, 3);
  ASSERT_EQ(norms.groups.size(), 3u);
  EXPECT_NEAR(norms.groups[0].item<double>(), std::sqrt(18.0 + 144), 1e-5);
  EXPECT_EQ(norms.groups[1].item<double>(), 0) << "the group is empty";
  EXPECT_NEAR(norms.groups[2].item<double>(), std::sqrt(32.0), 1e-5);
  EXPECT_NEAR(norms.global.item<double>(), std::sqrt(50.0 + 144), 1e-5);
  EXPECT_NEAR(global_norm(gradients).item<double>(), 1, 1e-5) << "the gradients are clipped";
}

TEST(GradNormGroups, ParametersBelongToImageTextOrObjective) {
  const AdamW optimizer({parameter("logit_scale", {}), parameter("visual.conv1.weight", {2}),
                         parameter("token_embedding.weight", {3}), parameter("visual.proj", {1})},
                        {});
  GradNormGroups towers = grad_norm_groups(optimizer);
  EXPECT_EQ(towers.names, (std::vector<std::string>{"image", "text", "objective"}));
  EXPECT_EQ(towers.of, (std::vector<std::size_t>{2, 0, 1, 0}));
  optimizer.parameters()[1].tensor.mutable_grad() = at::full({2}, 3.0);
  optimizer.parameters()[2].tensor.mutable_grad() = at::full({3}, 1.0);
  const GradientNorms norms = clip_gradients(optimizer, towers, std::nullopt);
  EXPECT_NEAR(norms.groups[0].item<double>(), std::sqrt(18.0), 1e-5);
  EXPECT_NEAR(norms.groups[1].item<double>(), std::sqrt(3.0), 1e-5);
  EXPECT_EQ(norms.groups[2].item<double>(), 0);
}

}  // namespace
}  // namespace tessera
