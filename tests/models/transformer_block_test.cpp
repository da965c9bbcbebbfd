#include <functional>
#include <map>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "src/measure/step_meter.h"
#include "src/models/autocast.h"
#include "src/models/per_sample_rng.h"
#include "src/models/self_attention.h"
#include "src/models/transformer.h"
#include "src/models/vit.h"
#include "tests/models/small_models.h"
#include "tests/support/test_name.h"
#include <tessera/models/lora.h>

// Compares blocks that run as one function with the same blocks as single operators (BlockPath).
namespace tessera {
namespace {

constexpr std::int64_t kBlockWidth = 16, kHeads = 2, kRows = 5, kTokens = 6;

struct Case {
  std::string name;
  std::function<void(TransformerSettings&)> settings = [](TransformerSettings&) {};
  std::function<SequenceInfo()> sequence = [] { return SequenceInfo{}; };
  bool packed = false;

  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
};

at::Tensor right_padded() {
  return length_mask({6, 2, 4, 1, 5}, kTokens);
}

std::vector<Case> cases() {
  const auto with = [](const std::string& name, const std::function<void(TransformerSettings&)>& settings) {
    return Case{name, settings};
  };
  const auto masked = [](const std::string& name, const std::function<AttentionMask()>& mask, bool packed = false) {
    Case out{name};
    out.sequence = [mask] { return SequenceInfo{mask()}; };
    out.packed = packed;
    return out;
  };
  const auto packed = [](bool causal) {
    AttentionMask mask;
    mask.causal = causal;
    mask.packed = packed_rows(right_padded());
    return mask;
  };
  std::vector<Case> out = {
      {"plain"},
      with("layer_scale", [](auto& s) { s.layer_scale_init = 0.3; }),
      with("drop_path", [](auto& s) { s.drop_path = 0.5; }),
      with("layer_scale_and_drop_path", [](auto& s) { s.layer_scale_init = 0.3, s.drop_path = 0.5; }),
      with("checkpointed", [](auto& s) { s.layer_scale_init = 0.3, s.drop_path = 0.5, s.grad_checkpointing = true; }),
      with("gated", [](auto& s) { s.mlp = "gated", s.activation = "silu"; }),
      with("without_biases", [](auto& s) { s.qkv_bias = "none", s.out_bias = false, s.mlp_bias = false; }),
      with("no_key_bias", [](auto& s) { s.qkv_bias = "no_key"; }),
      with("query_key_norm", [](auto& s) { s.qk_norm = true; }),
      masked("padding", [] { return self_attention_mask(right_padded(), kTokens); }),
      masked("causal", [] { return causal_attention_mask(right_padded(), kTokens); }),
      masked("packed", [packed] { return packed(false); }, true),
      masked("packed_causal", [packed] { return packed(true); }, true),
  };
  for (const char* activation : {"gelu_tanh", "quick_gelu", "silu", "relu"})
    out.push_back(with(activation, [=](auto& s) { s.activation = activation; }));
  Case rotated = with("rotary", [](auto& s) { s.qk_norm = true; });
  rotated.sequence = [] {
    SequenceInfo sequence;
    sequence.rotation = rotation_of_grid({}, {1, kTokens - 1}, kBlockWidth / kHeads, 1, at::kCPU);
    return sequence;
  };
  out.push_back(rotated);
  Case dropped = masked("packed_drop_path", [packed] { return packed(true); }, true);
  dropped.settings = [](auto& s) { s.drop_path = 0.5; };
  out.push_back(dropped);
  return out;
}

// The output of blocks for random tokens, and the gradients of the tokens and of all parameters.
struct Results {
  at::Tensor output;
  std::map<std::string, at::Tensor> gradients;
  bool one_function = false;  // whether the last block left an update to be added
};

class BlockAsOneFunction : public testing::TestWithParam<Case> {
 protected:
  std::shared_ptr<Transformer> blocks(at::ScalarType type) const {
    at::manual_seed(1);
    TransformerSettings s;
    s.width = kBlockWidth, s.layers = 3, s.heads = kHeads;
    GetParam().settings(s);
    auto out = std::make_shared<Transformer>(s, BlockInitialization::text);
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : out->parameters())
      if (parameter.dim() == 1) parameter.add_(0.1 * at::randn_like(parameter));  // biases and norms start at 0 and 1
    out->to(type);
    return out;
  }
  /// While the result exists, attention writes its gradients into one tensor, except with an explicit mask.
  std::unique_ptr<ForcedConfiguration> with_composed_attention(at::ScalarType type) const {
    const SequenceInfo sequence = GetParam().sequence();
    at::Tensor qkv = at::empty({kRows, kTokens, 3 * kBlockWidth}, type);
    if (GetParam().packed) qkv = pack(qkv, sequence.mask.packed);
    const auto problem = attention_problem(qkv, kHeads, sequence.mask);
    return problem ? std::make_unique<ForcedConfiguration>(attention_tuning_key(*problem), "composed") : nullptr;
  }
  Results run(Transformer& transformer, at::ScalarType type) const {
    at::manual_seed(2);
    at::Tensor x = at::randn({kRows, kTokens, kBlockWidth}, at::kDouble).to(type);
    const SequenceInfo sequence = GetParam().sequence();
    if (GetParam().packed) x = pack(x, sequence.mask.packed);
    const at::Tensor weights = at::randn(x.sizes(), at::kDouble).to(type);
    x.requires_grad_();
    transformer.zero_grad();
    const RowRngScope rows(row_keys(3, 0, 1, kRows));
    const ResidualStream last = transformer.run(x, sequence);
    Results out;
    out.one_function = last.update.value.defined();
    out.output = residual_sum(last);
    (out.output * weights).sum().backward();
    out.gradients["x"] = x.grad();
    for (const auto& item : transformer.named_parameters()) out.gradients[item.key()] = item.value().grad().clone();
    return out;
  }
  /// Expects that the norm of each difference is at most `share` of the norm of `theirs` plus 1. Some gradients are 0 but for rounding.
  static void expect_similar(const Results& ours, const Results& theirs, double share) {
    const auto compare = [share](const at::Tensor& a, const at::Tensor& b) {
      EXPECT_LE((a - b).norm().item<double>(), share * (1 + b.norm().item<double>()));
    };
    compare(ours.output, theirs.output);
    for (const auto& [name, gradient] : theirs.gradients) {
      SCOPED_TRACE(name);
      compare(ours.gradients.at(name), gradient);
    }
  }
  static void expect_same(const Results& ours, const Results& theirs, double tolerance) {
    EXPECT_TRUE(ours.one_function);
    EXPECT_FALSE(theirs.one_function);
    expect_close(ours.output, theirs.output, tolerance);
    for (const auto& [name, gradient] : theirs.gradients) {
      SCOPED_TRACE(name);
      ASSERT_TRUE(ours.gradients.at(name).defined());
      expect_close(ours.gradients.at(name), gradient, tolerance * (1 + gradient.abs().max().item<double>()));
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Of, BlockAsOneFunction, testing::ValuesIn(cases()), [](const auto& each) { return each.param.name; });

TEST_P(BlockAsOneFunction, EqualsItsOperatorsInFloat64) {
  const BlockPath one_function(BlockPath::Kind::one_function);
  const auto transformer = blocks(at::kDouble);
  const Results ours = run(*transformer, at::kDouble);
  const BlockPath operators(BlockPath::Kind::operators);
  expect_same(ours, run(*transformer, at::kDouble), 1e-10);
}

TEST_P(BlockAsOneFunction, EqualsItsOperatorsBitByBitInFloat32) {
  const BlockPath one_function(BlockPath::Kind::one_function);
  const auto transformer = blocks(at::kFloat);
  const Results ours = run(*transformer, at::kFloat);
  const BlockPath operators(BlockPath::Kind::operators);
  expect_same(ours, run(*transformer, at::kFloat), 0);
}

TEST_P(BlockAsOneFunction, EqualsItsOperatorsWithGradientsOfAttentionInOneTensor) {
  const BlockPath operators(BlockPath::Kind::operators);
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const auto transformer = blocks(type);
    const Results theirs = run(*transformer, type);
    const auto composed = with_composed_attention(type);
    const double tolerance = type == at::kDouble ? 1e-10 : 2e-5;
    const Results blocks_of_operators = run(*transformer, type);
    const BlockPath one_function(BlockPath::Kind::one_function);
    expect_same(run(*transformer, type), theirs, tolerance);
    expect_similar(blocks_of_operators, theirs, tolerance);
  }
}

TEST_P(BlockAsOneFunction, EqualsItsOperatorsUnderAutocast) {
  const BlockPath one_function(BlockPath::Kind::one_function);
  const auto transformer = blocks(at::kFloat);
  const auto under_autocast = [&](at::ScalarType stream) {
    const Autocast autocast(at::kCPU);
    return run(*transformer, stream);
  };
  const Results ours = under_autocast(at::kFloat), narrow = under_autocast(at::kBFloat16);
  const BlockPath operators(BlockPath::Kind::operators);
  const Results theirs = under_autocast(at::kFloat), exact = run(*transformer, at::kFloat);
  EXPECT_EQ(ours.output.scalar_type(), at::kFloat);
  EXPECT_EQ(narrow.output.scalar_type(), at::kBFloat16);
  // Gradients of biases are not rounded to bfloat16, unlike those of the operators.
  expect_same(ours, theirs, 1e-2);
  expect_similar(narrow, exact, 0.1);
}

TEST_P(BlockAsOneFunction, TakesTheSameFlops) {
  const BlockPath one_function(BlockPath::Kind::one_function);
  const auto transformer = blocks(at::kFloat);
  const auto flops = [&] {
    const FlopCounter counter;
    run(*transformer, at::kFloat);
    return std::array{counter.flops(), counter.recomputed()};
  };
  const auto ours = flops();
  if (!GetParam().packed) {  // on the CPU, LibTorch fills rows up
    const auto composed = with_composed_attention(at::kFloat);
    EXPECT_EQ(ours, flops());
  }
  const BlockPath operators(BlockPath::Kind::operators);
  EXPECT_EQ(ours, flops());
}

TransformerSettings small() {
  TransformerSettings s;
  s.width = kBlockWidth, s.layers = 2, s.heads = kHeads;
  return s;
}

// Whether the last of these blocks runs as one function.
bool is_one_function(Transformer& transformer) {
  return transformer.run(at::randn({2, 3, kBlockWidth})).update.value.defined();
}

TEST(TransformerBlock, RunsAsOneFunctionIfItCan) {
  const BlockPath one_function(BlockPath::Kind::one_function);
  const auto of = [](const std::function<void(TransformerSettings&)>& change) {
    TransformerSettings s = small();
    change(s);
    Transformer transformer(s, BlockInitialization::image);
    return is_one_function(transformer);
  };
  EXPECT_TRUE(of([](auto&) {}));
  EXPECT_FALSE(of([](auto& s) { s.block_norm = "after"; }));
  EXPECT_FALSE(of([](auto& s) { s.block_norm = "on_updates"; }));
  EXPECT_FALSE(of([](auto& s) { s.mlp_norm = true; }));
  EXPECT_FALSE(of([](auto& s) { s.mlp_input_norm = true; }));
  EXPECT_FALSE(of([](auto& s) { s.attention_norm = true; }));
  EXPECT_FALSE(of([](auto& s) { s.block_norm = "both"; }));
  EXPECT_FALSE(of([](auto& s) { s.norm = "rms"; }));
  EXPECT_FALSE(of([](auto& s) { s.attention_gate = "plain"; }));
  EXPECT_FALSE(of([](auto& s) { s.key_heads = 1; }));
}

TEST(TransformerBlock, OfBothKindsTakeTurns) {
  const BlockPath one_function(BlockPath::Kind::one_function);
  at::manual_seed(5);
  TransformerSettings s = small();
  s.layers = 4, s.layer_scale_init = 0.5;
  const auto shared = std::make_shared<Transformer>(s, BlockInitialization::image);
  Transformer& transformer = *shared;
  const auto adapted = [&](std::size_t block) {
    for (const auto& module : transformer.modules())
      if (auto* each = dynamic_cast<TransformerBlock*>(module.get()); each != nullptr && block-- == 0)
        for (const auto& part : each->adaptable_modules()) {
          auto& adaptable = dynamic_cast<Adaptable&>(*part);
          adaptable.add_adapter(*part, adaptable.linear_maps().front(), {.rank = 2});
        }
  };
  adapted(1);
  EXPECT_TRUE(is_one_function(transformer)) << "the last block has no adapter";
  const auto gradients = [&] {
    at::manual_seed(6);
    at::Tensor x = at::randn({2, 3, kBlockWidth}).requires_grad_();
    transformer.zero_grad();
    transformer.forward(x).square().sum().backward();
    std::vector<at::Tensor> out = {x.grad()};
    for (const at::Tensor& parameter : transformer.parameters()) out.push_back(parameter.grad().clone());
    return out;
  };
  const std::vector<at::Tensor> ours = gradients();
  const BlockPath operators(BlockPath::Kind::operators);
  const std::vector<at::Tensor> theirs = gradients();
  for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(at::equal(ours[i], theirs[i])) << i;
}

TEST(TransformerBlock, RunsAsOperatorsOnTheCpuUnlessAskedOtherwise) {
  Transformer transformer(small(), BlockInitialization::image);
  EXPECT_FALSE(is_one_function(transformer));
  const BlockPath one_function(BlockPath::Kind::one_function);
  EXPECT_TRUE(is_one_function(transformer));
}

TEST(TransformerBlock, WithAdaptersRunsAsOperators) {
  const BlockPath one_function(BlockPath::Kind::one_function);
  const auto shared = std::make_shared<Transformer>(small(), BlockInitialization::image);
  for (const auto& module : shared->modules())
    if (auto* adaptable = dynamic_cast<Adaptable*>(module.get())) adaptable->add_adapter(*module, adaptable->linear_maps().front(), {.rank = 2});
  EXPECT_FALSE(is_one_function(*shared));
}

TEST(TransformerBlock, CanBeDifferentiatedTwiceAsOperators) {
  const BlockPath one_function(BlockPath::Kind::one_function);
  Transformer transformer(small(), BlockInitialization::image);
  const at::Tensor x = at::randn({2, 3, kBlockWidth}).requires_grad_();
  const auto second = [&] {
    const at::Tensor first = torch::autograd::grad({transformer.forward(x).square().sum()}, {x}, {}, std::nullopt, /*create_graph=*/true)[0];
    return torch::autograd::grad({first.square().sum()}, {x})[0];
  };
  EXPECT_THROW(second(), c10::Error);
  at::globalContext().setSDPUseFlash(false);
  const BlockPath operators(BlockPath::Kind::operators);
  EXPECT_GT(second().abs().max().item<double>(), 0);
  at::globalContext().setSDPUseFlash(true);
}

TEST(TransformerBlock, KeepsNothingWithoutGradients) {
  const BlockPath one_function(BlockPath::Kind::one_function);
  Transformer transformer(small(), BlockInitialization::image);
  const at::NoGradGuard no_grad;
  const at::Tensor x = at::randn({8, 16, kBlockWidth});
  const at::Tensor out = transformer.forward(x);
  EXPECT_FALSE(out.requires_grad());
  const auto peak = [&] {
    const MemoryMeter meter;
    transformer.forward(x);
    return meter.peak();
  };
  const std::int64_t ours = peak();
  const BlockPath operators(BlockPath::Kind::operators);
  const std::int64_t statistics = 2 * 8 * 16 * 4;  // bytes of a norm's means and deviations, which the function gets even if nobody keeps them
  EXPECT_LE(ours, peak() + statistics);
}

TEST(Vit, StartsANarrowResidualStreamUnderAutocast) {
  VitSettings s;
  s.image_size = 8, s.patch_size = 4, s.width = kBlockWidth, s.layers = 2, s.heads = kHeads;
  at::manual_seed(7);
  Vit vit(s);
  const at::Tensor image = at::randn({2, 3, 8, 8});
  const auto tokens = [&](at::ScalarType residual, bool autocast) {
    vit.set_residual_type(residual);
    std::optional<Autocast> scope;
    if (autocast) scope.emplace(at::kCPU);
    return vit.encode(image_input(image)).tokens;
  };
  const at::Tensor exact = tokens(at::kFloat, false), wide = tokens(at::kFloat, true), narrow = tokens(at::kBFloat16, true);
  EXPECT_EQ(narrow.scalar_type(), at::kFloat) << "features keep their type";
  EXPECT_TRUE(at::equal(tokens(at::kBFloat16, false), exact)) << "without autocast, the setting has no effect";
  EXPECT_FALSE(at::equal(narrow, wide));
  expect_close(narrow, exact, 0.1);
}

}  // namespace
}  // namespace tessera
