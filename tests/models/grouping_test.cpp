#include <limits>

#include "src/models/grouping_block.h"
#include "src/models/per_sample_rng.h"
#include "tests/models/small_models.h"
#include "tests/support/gradcheck.h"

namespace tessera {
namespace {

constexpr std::int64_t kRows = 2, kTokenCount = 5, kGroupCount = 3, kGroupWidth = 6;

/// A grouping block in float64 whose scores are far apart, and inputs for it. The last three tokens of the second row are padding.
struct Grouping {
  std::shared_ptr<GroupingBlock> block;
  at::Tensor tokens, groups, mask, noise;

  explicit Grouping(const GroupingSettings& settings, std::int64_t output_groups = kGroupCount) {
    at::manual_seed(11);
    block = make_grouping_block(
        settings, {.width = kGroupWidth, .groups = kGroupCount, .output_groups = output_groups, .heads = 2});
    block->to(at::kDouble);
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : block->parameters()) parameter.normal_();
    tokens = leaf({kRows, kTokenCount, kGroupWidth});
    groups = leaf({kRows, kGroupCount, kGroupWidth});
    mask = length_mask({kTokenCount, 2}, kTokenCount);
    noise = at::randn({kRows, output_groups, kTokenCount}, at::kDouble);
  }
  Grouped forward() const { return block->forward(tokens, groups, mask, noise); }
  at::Tensor parameter(const std::string& name) const { return block->named_parameters()[name]; }
  std::vector<at::Tensor> leaves() const {
    std::vector<at::Tensor> out = block->parameters();
    out.insert(out.end(), {tokens, groups});
    return out;
  }

 private:
  static at::Tensor leaf(at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble).requires_grad_(true); }
};

std::vector<at::Tensor> grouping_gradients(const at::Tensor& loss, const std::vector<at::Tensor>& leaves) {
  return torch::autograd::grad({loss}, leaves, {}, std::nullopt, /*create_graph=*/false, /*allow_unused=*/true);
}

/// Computes the variant `plain` row by row. `assignment` holds the group of each token. A hard weight is one-hot + soft - `constant`.
/// `constant` holds the values of the soft weights, without their gradient. The gradient of this function is the straight-through
/// estimator.
at::Tensor straight_through(const Grouping& g, const GroupingSettings& s, const at::Tensor& assignment,
                            const std::vector<at::Tensor>& constant, std::vector<at::Tensor>* soft = nullptr) {
  const auto linear = [&](const std::string& name, const at::Tensor& x) {
    return at::matmul(x, g.parameter("assign." + name + ".weight").t()) + g.parameter("assign." + name + ".bias");
  };
  std::vector<at::Tensor> rows;
  for (std::int64_t b = 0; b < kRows; ++b) {
    const std::int64_t real = g.mask[b].sum().item<std::int64_t>();
    const at::Tensor t = g.tokens[b].slice(0, 0, real);
    const at::Tensor scores = at::matmul(linear("q_proj", g.groups[b]), linear("k_proj", t).t()) / std::sqrt(6.0);
    const at::Tensor y = ((scores + g.noise[b].slice(1, 0, real)) / s.gumbel_tau).softmax(0);
    if (soft != nullptr) soft->push_back(y.detach());
    at::Tensor weights = y;
    if (s.hard) {
      const at::Tensor hot = at::one_hot(assignment[b].slice(0, 0, real), kGroupCount).t().to(at::kDouble);
      weights = hot + y - (constant.empty() ? y.detach() : constant[static_cast<std::size_t>(b)]);
    }
    std::vector<at::Tensor> updated;
    for (std::int64_t k = 0; k < kGroupCount; ++k) {
      const bool empty = s.hard && (assignment[b].slice(0, 0, real) == k).sum().item<std::int64_t>() == 0;
      const double eps = s.assign_eps.value_or(0);
      const at::Tensor sum = weights[k].sum() + eps;
      const at::Tensor mean =
          at::matmul(weights[k], linear("v_proj", t)) / (empty && eps == 0 ? at::ones({}, at::kDouble) : sum);
      updated.push_back(g.groups[b][k] + linear("proj", mean));
    }
    rows.push_back(at::stack(updated));
  }
  return at::stack(rows);
}

TEST(GroupingBlock, GradientsOfTheStraightThroughEstimatorMatchFiniteDifferences) {
  for (const bool hard : {true, false})
    for (const std::optional<double> eps : {std::optional<double>(), std::optional<double>(1.0)}) {
      SCOPED_TRACE(concat("hard ", hard, ", assign_eps ", eps.value_or(0)));
      const GroupingSettings settings{.hard = hard, .gumbel_tau = 0.7, .assign_eps = eps};
      const Grouping g(settings);
      const Grouped out = g.forward();
      std::vector<at::Tensor> constant;
      const at::Tensor expected = straight_through(g, settings, out.assignment, {}, &constant);
      expect_close(out.groups, expected, 1e-12);
      const at::Tensor cotangent = at::randn(expected.sizes(), at::kDouble);
      const auto surrogate = [&] {
        return (straight_through(g, settings, out.assignment, constant) * cotangent).sum();
      };
      expect_gradients_match({g.tokens, g.groups, g.parameter("assign.k_proj.weight")}, surrogate, 1e-6);
      const auto ours = grouping_gradients((out.groups * cotangent).sum(), g.leaves());
      const auto theirs = grouping_gradients(surrogate(), g.leaves());
      for (std::size_t i = 0; i < ours.size(); ++i) expect_close(ours[i], theirs[i], 1e-9);
    }
}

TEST(GroupingBlock, PaddingHasNoEffect) {
  for (const char* variant : {"plain", "groupvit"}) {
    const Grouping g({.variant = variant});
    const Grouped clean = g.forward();
    const auto of_clean = grouping_gradients(clean.groups.sum(), g.leaves());
    {
      const at::NoGradGuard no_grad;
      g.tokens.masked_fill_(g.mask.logical_not().unsqueeze(2), std::numeric_limits<double>::quiet_NaN());
    }
    const Grouped padded = g.forward();
    EXPECT_TRUE(at::equal(padded.groups, clean.groups)) << variant;
    EXPECT_TRUE(at::equal(padded.soft_assignment, clean.soft_assignment)) << variant;
    const auto of_padded = grouping_gradients(padded.groups.sum(), g.leaves());
    for (std::size_t i = 0; i < of_clean.size(); ++i) EXPECT_TRUE(at::equal(of_padded[i], of_clean[i])) << variant;
    const at::Tensor padding = g.mask.logical_not();
    EXPECT_TRUE((padded.assignment == -1).equal(padding));
    expect_close(padded.soft_assignment.sum(1), g.mask.to(at::kDouble), 1e-12);
  }
}

TEST(GroupingBlock, GroupsWithoutTokensAndRowsWithoutTokensStayFinite) {
  for (const char* variant : {"plain", "groupvit"}) {
    Grouping g({.variant = variant});
    g.mask = length_mask({1, 0}, kTokenCount);  // row 0 has one token, so two of its three groups stay empty; row 1 has no token
    const Grouped out = g.forward();
    for (const at::Tensor& gradient : grouping_gradients(out.groups.square().sum(), g.leaves()))
      EXPECT_TRUE(at::isfinite(gradient).all().item<bool>()) << variant;
    EXPECT_TRUE(at::isfinite(out.groups).all().item<bool>()) << variant;
    if (std::string(variant) == "plain")
      expect_close(out.groups[1], g.groups[1] + g.parameter("assign.proj.bias"), 1e-12);
  }
}

TEST(GroupingBlock, SoftGroupsWithTinyWeightsStayAWeightedMean) {
  // In float32 exp(-90) is not a normal number, and exp(-120) is 0.
  for (const double scale : {20.0, 90.0, 120.0, 300.0}) {
    SCOPED_TRACE(scale);
    const GroupingSettings settings{.hard = false};
    Grouping exact(settings);
    exact.noise = scale * at::tensor({0., -1., -0.5}, at::kDouble).view({1, 3, 1}).expand({kRows, 3, kTokenCount});
    const at::Tensor expected = exact.forward().groups;
    const auto of_exact = grouping_gradients(expected.square().sum(), exact.leaves());
    exact.block->to(at::kFloat);
    Grouping rounded = exact;
    rounded.tokens = exact.tokens.detach().to(at::kFloat).requires_grad_(true);
    rounded.groups = exact.groups.detach().to(at::kFloat).requires_grad_(true);
    rounded.noise = exact.noise.to(at::kFloat);
    const at::Tensor groups = rounded.forward().groups;
    expect_close(groups.to(at::kDouble), expected, 1e-3);
    const auto gradients = grouping_gradients(groups.square().sum(), rounded.leaves());
    for (std::size_t i = 0; i < gradients.size(); ++i)
      expect_close(gradients[i].to(at::kDouble), of_exact[i], 1e-3 * (1 + of_exact[i].abs().max().item<double>()));
  }
}

TEST(GroupingBlock, NoiseHasNoGradientAndNoEffectInPadding) {
  for (const bool hard : {true, false}) {
    Grouping g({.hard = hard});
    const auto clean = grouping_gradients(g.forward().groups.square().sum(), g.leaves());
    g.noise.masked_fill_(g.mask.logical_not().unsqueeze(1), std::numeric_limits<double>::quiet_NaN()).requires_grad_(true);
    std::vector<at::Tensor> leaves = g.leaves();
    leaves.push_back(g.noise);
    const auto gradients = grouping_gradients(g.forward().groups.square().sum(), leaves);
    EXPECT_FALSE(gradients.back().defined()) << "the noise is an input without gradient";
    for (std::size_t i = 0; i < clean.size(); ++i) EXPECT_TRUE(at::equal(gradients[i], clean[i])) << i;
  }
}

TEST(GroupingBlock, NoiseDependsOnTheKeyOfTheRowAndThePositionOfTheToken) {
  const Grouping g({});
  const auto drawn = [&](const at::Tensor& tokens, const at::Tensor& keys) {
    const RowRngScope rows(keys);
    return g.block->draw_noise(tokens);
  };
  const at::Tensor keys = row_keys(5, 0, 1, kRows);
  const at::Tensor both = drawn(g.tokens, keys);
  EXPECT_EQ(both.sizes(), (std::vector<std::int64_t>{kRows, kGroupCount, kTokenCount}));
  EXPECT_TRUE(at::equal(drawn(g.tokens, keys), both));
  for (std::int64_t row = 0; row < kRows; ++row)
    EXPECT_TRUE(at::equal(drawn(g.tokens.narrow(0, row, 1), keys.narrow(0, row, 1))[0], both[row]));
  EXPECT_TRUE(at::equal(drawn(g.tokens.slice(1, 0, 3), keys), both.slice(2, 0, 3)));
  EXPECT_FALSE(at::equal(drawn(g.tokens, row_keys(6, 0, 1, kRows)), both));
}

TEST(GroupingBlock, NoiseHasAGumbelDistribution) {
  const Grouping g({});
  const RowRngScope rows(row_keys(5, 0, 1, 200));
  const at::Tensor noise = g.block->draw_noise(at::zeros({200, 100, kGroupWidth})).to(at::kDouble);  // draws 60,000 numbers
  EXPECT_NEAR(noise.mean().item<double>(), 0.5772, 0.03);
  EXPECT_NEAR(noise.var().item<double>(), 1.6449, 0.08);
  EXPECT_TRUE(at::isfinite(noise).all().item<bool>());
}

TEST(GroupingBlock, DrawsNoNoiseInEvaluationOrWhenFrozen) {
  const Grouping g({});
  EXPECT_TRUE(g.block->draw_noise(g.tokens).defined());
  g.block->eval();
  EXPECT_FALSE(g.block->draw_noise(g.tokens).defined());
  g.block->train();
  for (at::Tensor& parameter : g.block->parameters()) parameter.set_requires_grad(false);
  EXPECT_FALSE(g.block->draw_noise(g.tokens).defined());
}

}  // namespace
}  // namespace tessera
