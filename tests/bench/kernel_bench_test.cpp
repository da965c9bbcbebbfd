#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/measure/step_meter.h"
#include "src/ops/token_contrast.h"
#include "tests/support/error_of.h"
#include "tools/bench/kernel_bench.h"
#include "tools/bench/kernel_cases.h"
#include <tessera/ops/flops_regularizer.h>
#include <tessera/ops/linear_cross_entropy.h>
#include <tessera/ops/max_similarity.h>
#include <tessera/ops/slot_attention.h>
#include <tessera/ops/sparsify_group.h>
#include <tessera/ops/token_max_projection.h>

namespace tessera::bench {
namespace {

TEST(KernelBench, TheCompositionsEqualTheOperators) {
  at::manual_seed(0);
  const at::Tensor text = at::randn({2, 5, 16}), image = at::randn({2, 9, 16});
  const at::Tensor operated = sparsify_group(text, image, at::ones({2, 5}, at::kBool), SparsifySettings{});
  EXPECT_TRUE(at::allclose(composed_sparsify_group(text, image), operated, 1e-5, 1e-6));
  const at::Tensor keys = at::randn({2, 5, 16}), scale = at::full({}, 5.0);
  EXPECT_TRUE(at::allclose(composed_token_contrast(text, keys, scale), normalized_token_contrast(text, keys, {}, scale), 1e-5, 1e-5));
  const auto [i2t, t2i] = max_similarity(image, text, at::ones({2, 9}, at::kBool), at::ones({2, 5}, at::kBool), {});
  const auto [composed_i2t, composed_t2i] = composed_max_similarity(image, text);
  EXPECT_TRUE(at::allclose(composed_i2t, i2t, 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(composed_t2i, t2i, 1e-5, 1e-6));
  const at::Tensor queries = at::randn({3, 4}), weight = at::randn({12, 16}), bias = at::randn({12});
  SlotAttentionInputs slots{.tokens = image,
                            .mask = {},
                            .queries = queries.unsqueeze(1),
                            .key_weight = weight.view({3, 4, 16}),
                            .value_weight = {},
                            .value_bias = bias.view({3, 4})};
  slots.value_weight = slots.key_weight;
  EXPECT_TRUE(
      at::allclose(composed_slot_attention(image, queries, weight, bias), slot_attention(slots).heads, 1e-4, 1e-5));
  const at::Tensor table = at::randn({33, 16}), shift = at::randn({33});
  EXPECT_TRUE(at::allclose(composed_token_max_projection(image, table, shift),
                           token_max_projection(image, {}, table, shift).encoding, 1e-5, 1e-5));
  const at::Tensor targets = at::tensor({3, 32}, at::kLong);
  EXPECT_TRUE(at::allclose(composed_linear_cross_entropy(text[0].slice(0, 0, 2), table, targets),
                           linear_cross_entropy(text[0].slice(0, 0, 2), table, targets)));
  const at::Tensor words = at::tensor({3, 32, 1, 0}, at::kLong).view({2, 2}), shares = at::rand({2, 2});
  EXPECT_TRUE(at::allclose(composed_linear_soft_cross_entropy(text[0].slice(0, 0, 2), table, words, shares),
                           linear_soft_cross_entropy(text[0].slice(0, 0, 2), table, words, shares)));
  const at::Tensor encoding = at::rand({6, 11});
  EXPECT_TRUE(at::allclose(composed_flops_regularizer(encoding), flops_regularizer(encoding)));
}

double counted(const std::function<void()>& call) {
  call();  // the first call of a backward pass also runs its forward pass
  const FlopCounter counter;
  call();
  return counter.flops();
}

TEST(KernelBench, StatedFlopsEqualTheCountedOnes) {
  std::vector<KernelCase> cases = sparsify_group_cases({2, 5, 9, 16}, at::kCPU, at::kFloat);
  for (KernelCase& each : max_similarity_cases({2, 5, 9, 16}, at::kCPU, at::kFloat)) cases.push_back(std::move(each));
  for (KernelCase& each : slot_attention_cases({2, 3, 9, 16, 4}, at::kCPU, at::kFloat))
    cases.push_back(std::move(each));
  for (KernelCase& each : token_max_projection_cases({2, 9, 33, 16}, at::kCPU, at::kFloat))
    cases.push_back(std::move(each));
  for (const KernelCase& each : self_attention_cases({2, 9, 3, 8}, at::kCPU, at::kFloat)) EXPECT_EQ(counted(each.run), each.flops) << each.kernel;
  for (const CrossEntropyShape& shape : {CrossEntropyShape{5, 33, 16}, CrossEntropyShape{5, 33, 16, 4}})
    for (KernelCase& each : linear_cross_entropy_cases(shape, at::kCPU, at::kFloat)) cases.push_back(std::move(each));
  for (KernelCase& each : linear_map_cases({5, 16, 24}, at::kCPU, at::kFloat)) cases.push_back(std::move(each));
  for (const KernelCase& each : cases) EXPECT_EQ(counted(each.run), each.flops) << each.kernel << " " << each.pass;
  const double product = 2.0 * 2 * 5 * 9 * 16;
  EXPECT_EQ(cases[0].flops, 2 * product);
  EXPECT_EQ(cases[1].flops, 5 * product) << "the kernel recomputes similarities";
  EXPECT_EQ(counted(cases[0].composed), 2 * product);
  EXPECT_EQ(counted(cases[1].composed), 4 * product);
  EXPECT_EQ(counted(cases[2].composed), 2 * product) << "two texts for each image";
  EXPECT_EQ(counted(cases[3].composed), 4 * product);
  const double keys = 2.0 * 2 * 9 * 3 * 4 * 16, scores = 2.0 * 2 * 9 * 3 * 4;
  EXPECT_EQ(counted(cases[4].composed), keys + 2 * scores);
  EXPECT_LT(cases[4].flops, counted(cases[4].composed));
  const double activations = 2.0 * 2 * 9 * 33 * 16;
  EXPECT_EQ(counted(cases[6].composed), activations);
  EXPECT_EQ(counted(cases[7].composed), 2 * activations) << "the kernel adds rows instead";
  const double logits = 2.0 * 5 * 33 * 16;
  EXPECT_EQ(cases[8].flops, 3 * logits) << "includes the gradients";
  EXPECT_EQ(counted(cases[8].composed), logits);
  EXPECT_EQ(counted(cases[9].composed), 2 * logits);
}

TEST(KernelBench, MeasuresEveryPassInEveryType) {
  KernelBenchSettings settings;
  settings.groups = {{2, 5, 9, 16}};
  settings.encodings = {{4, 33}};
  settings.slots = {{2, 3, 9, 16, 4}};
  settings.similarities = {{3, 5, 9, 16}};
  settings.projections = {{2, 9, 33, 16}};
  settings.cross_entropies = {{5, 33, 16}};
  settings.maps = {{5, 16, 24}};
  settings.repeats = 1;
  settings.time_limit = 0.2;
  const KernelBench bench = measure_kernels(settings);
  ASSERT_EQ(bench.costs.size(), 25u);
  for (const KernelCost& cost : bench.costs) {
    EXPECT_GT(cost.seconds, 0) << cost.kernel << cost.pass;
    EXPECT_GT(cost.composed_seconds, 0) << cost.kernel << cost.pass;
    EXPECT_GT(cost.memory, 0) << cost.kernel << cost.pass;
    EXPECT_GT(cost.composed_memory, 0) << cost.kernel << cost.pass;
    EXPECT_GT(bench.product_flops(cost.dtype), 0);
    EXPECT_GT(cost.bytes, 0) << cost.kernel << cost.pass;
    EXPECT_GT(bench.roofline_seconds(cost), 0) << cost.kernel << cost.pass;
  }
  EXPECT_GT(bench.peak.bandwidth, 0);
  const KernelCost& forward = bench.costs.front();
  EXPECT_EQ(forward.bytes, 4.0 * (2 * 2 * 5 * 16 + 2 * 9 * 16 + 2 * 5 * 3)) << "text, grouped, patches, statistics";
  const auto json = nlohmann::json::parse(to_json(bench));
  EXPECT_EQ(json["kernels"].size(), 25u);
  EXPECT_NE(to_markdown(bench).find("| sparsify_group forward "), std::string::npos);
}

TEST(KernelBench, TheRooflineIsTheSlowerOfMovingAndComputing) {
  KernelBench bench;
  bench.peak = {.bandwidth = 100, .cached = 400, .products = {{at::kFloat, 1000}, {at::kBFloat16, 8000}}};
  KernelCost& cost = bench.costs.emplace_back();
  cost.bytes = 50;
  cost.seconds = 2;
  EXPECT_EQ(bench.roofline_seconds(cost), 0.5);
  cost.flops = 1000;
  EXPECT_EQ(bench.roofline_seconds(cost), 1);
  EXPECT_NE(to_markdown(bench).find(" 50.0% |       50.0% |"), std::string::npos) << to_markdown(bench);
  EXPECT_EQ(nlohmann::json::parse(to_json(bench))["kernels"][0]["roofline_seconds"], 1.0);
  cost.dtype = at::kBFloat16;
  EXPECT_EQ(bench.roofline_seconds(cost), 0.5) << "bfloat16 is faster";
}

TEST(KernelBench, RowsOfFlopsRegularizerWriteOneRowOrAllOrAdd) {
  const std::vector<KernelCase> cases = flops_regularizer_cases({4, 33}, at::kCPU, at::kBFloat16);
  ASSERT_EQ(cases.size(), 4u);
  const double means = 33 * 4, row = 33 * 2, all = 4 * row;
  EXPECT_EQ(cases[0].bytes, all + means);
  EXPECT_EQ(cases[1].bytes, means + row);
  EXPECT_EQ(cases[2].bytes, means + all);
  EXPECT_EQ(cases[3].bytes, means + row + 2 * all);
  for (const KernelCase& each : cases) {
    each.run();
    each.composed();
  }
}

TEST(KernelBench, RowOfAdamWReadsGradientsAndReadsAndWritesTheRest) {
  const std::vector<KernelCase> cases = adamw_cases({3, 50}, at::kCPU);
  ASSERT_EQ(cases.size(), 1u);
  EXPECT_EQ(cases[0].bytes, 28 * 3 * 50) << "only the kernel also writes copies";
  cases[0].run();
  cases[0].composed();
}

TEST(KernelBench, WithoutShapesOnlyThePeakRatesAreReported) {
  KernelBenchSettings settings;
  settings.dtypes = {at::kFloat};
  settings.repeats = 1;
  settings.time_limit = 0.2;
  const std::string report = to_markdown(measure_kernels(settings));
  EXPECT_NE(report.find("GB/s, in the cache "), std::string::npos) << report;
  EXPECT_EQ(report.find('|'), std::string::npos) << report;
}

TEST(KernelBench, ReportsACompositionThatDoesNotFit) {
  KernelBench bench;
  KernelCost& cost = bench.costs.emplace_back();
  cost.kernel = "max_similarity";
  cost.seconds = 1;
  cost.composed_fits = false;
  EXPECT_NE(to_markdown(bench).find("| does not fit |"), std::string::npos) << to_markdown(bench);
  EXPECT_TRUE(nlohmann::json::parse(to_json(bench))["kernels"][0]["composed_seconds"].is_null());
}

TEST(KernelBench, InvalidShapesAreRefused) {
  EXPECT_EQ(parse_group_shape("64x55x196x512").patches, 196);
  EXPECT_EQ(parse_encoding_shape("512x30522").columns, 30522);
  for (const char* text :
       {"", "64", "64x55x196", "64x55x196x512x2", "0x1x1x8", "ax1x1x8", "-1x1x1x8", "1x1x1x99999999999"})
    EXPECT_EQ(error_of([&] { parse_group_shape(text); }),
              concat("--sparsify-group ", text, ": expected sizes of at least 1 such as 64x55x196x512 (B, L, P, D)"));
}

}  // namespace
}  // namespace tessera::bench
