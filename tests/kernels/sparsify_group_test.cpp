#include <cstring>

#include "kernels/sparsify_group/configurations.h"
#include "kernels/sparsify_group/row_rules.h"
#include "tests/kernels/product_hopper.h"
#include "tests/kernels/sparsify_group_case.h"

namespace tessera::kernels::test {
namespace {

SparsifyGroupProblem problem_of(std::int64_t batch, std::int64_t tokens, std::int64_t patches, std::int64_t width,
                                DataType type = DataType::kFloat32) {
  SparsifyGroupProblem problem;
  problem.batch = batch;
  problem.tokens = tokens;
  problem.patches = patches;
  problem.width = width;
  problem.type = type;
  problem.threshold = paper_threshold(patches);
  return problem;
}

bool runs_hopper_kernels(const Backend& on) {
#if defined(TESSERA_TEST_CUDA)
  if (on.name == "cuda") return cuda::runs_hopper_kernels();
#endif
  return on.name == "emulation";
}

class SparsifyGroup : public KernelTest {};
INSTANTIATE_TEST_SUITE_P(On, SparsifyGroup, testing::ValuesIn(backend_names()), test_name<std::string>);

TEST_P(SparsifyGroup, MatchesTheDefinitionAtManyShapes) {
  const std::int64_t shapes[][4] = {
      {1, 1, 1, 8},    {2, 5, 7, 8},    {2, 1, 20, 24},   {1, 3, 1024, 8}, {3, 17, 2, 3},
      {1, 70, 9, 24},  {2, 33, 49, 72}, {1, 20, 257, 8},  {1, 18, 300, 5}, {1, 35, 641, 16},
      {2, 6, 16, 130}, {1, 64, 16, 4},  {1, 130, 33, 40},
  };
  for (const auto& [batch, tokens, patches, width] : shapes) {
    for (const DataType type : {DataType::kFloat32, DataType::kBfloat16}) {
      SCOPED_TRACE(testing::Message() << batch << " x " << tokens << " x " << patches << " x " << width
                                      << (type == DataType::kFloat32 ? " float32" : " bfloat16"));
      expect_as_naive(on, random_inputs(problem_of(batch, tokens, patches, width, type), true));
    }
  }
}

TEST_P(SparsifyGroup, MatchesTheDefinitionWithoutAMask) {
  expect_as_naive(on, random_inputs(problem_of(2, 9, 30, 16), false));
  expect_as_naive(on, random_inputs(problem_of(1, 64, 16, 1), false));
}

TEST_P(SparsifyGroup, ThresholdsFromKeepingAllToKeepingOnlyTheMaximum) {
  for (const float threshold : {0.0f, 0.3f, 0.999f, 1.0f}) {
    SCOPED_TRACE(threshold);
    SparsifyGroupProblem problem = problem_of(2, 7, 23, 16);
    problem.threshold = threshold;
    expect_as_naive(on, random_inputs(problem, true));
  }
}

TEST_P(SparsifyGroup, SupportsSoftmaxWeights) {
  for (const float temperature : {0.5f, 1.0f, 20.0f}) {
    for (const DataType type : {DataType::kFloat32, DataType::kBfloat16}) {
      SCOPED_TRACE(temperature);
      SparsifyGroupProblem problem = problem_of(2, 21, 40, 16, type);
      problem.weights = PatchWeights::kSoftmax;
      problem.softmax_temperature = temperature;
      expect_as_naive(on, random_inputs(problem, true));
    }
  }
}

// With small whole numbers, similarities are exact. So the kernel and the definition agree on which similarities tie and which equal the
// threshold.
TEST_P(SparsifyGroup, TiesShareTheGradientOfTheMinimumAndEqualToTheThresholdIsKept) {
  for (const DataType type : {DataType::kFloat32, DataType::kBfloat16}) {
    for (const float threshold : {0.0f, 0.125f, 0.1f, 1.0f / 3.0f, 0.5f}) {
      SCOPED_TRACE(threshold);
      SparsifyGroupProblem problem = problem_of(3, 40, 11, 8, type);
      problem.threshold = threshold;
      SparsifyGroupInputs inputs = random_inputs(problem, true);
      std::mt19937 generator(7);
      for (float& value : inputs.text) value = static_cast<float>(static_cast<int>(generator() % 5) - 2);
      for (float& value : inputs.image) value = static_cast<float>(static_cast<int>(generator() % 3) - 1);
      // The kernel rounds the normalized similarity to float32 before it compares it with the threshold. So the results must match the
      // definition only for thresholds that float32 represents exactly.
      const SparsifyGroupResults ours = run(on, inputs);
      if (threshold == 0.125f || threshold == 0.5f || threshold == 0.0f) expect_as_naive(on, inputs);
      const std::vector<float> t = inputs.text, v = inputs.image;
      for (std::int64_t row = 0; row < problem.batch * problem.tokens; ++row) {
        if (inputs.mask[row] == 0) continue;
        std::vector<float> s(problem.patches);
        for (std::int64_t p = 0; p < problem.patches; ++p) {
          for (int d = 0; d < 8; ++d) s[p] += t[row * 8 + d] * v[(row / problem.tokens * problem.patches + p) * 8 + d];
        }
        const float low = *std::min_element(s.begin(), s.end()), high = *std::max_element(s.begin(), s.end());
        for (std::int64_t p = 0; p < problem.patches; ++p) {
          const bool positive = high == low || ((s[p] - low) / (high - low) >= threshold && s[p] > low);
          EXPECT_EQ(ours.weights[row * problem.patches + p] > 0.0f, positive) << "row " << row << " patch " << p;
        }
      }
    }
  }
}

TEST_P(SparsifyGroup, FlatRowsGetUniformWeightsWithoutGradient) {
  for (const DataType type : {DataType::kFloat32, DataType::kBfloat16}) {
    const SparsifyGroupProblem problem = problem_of(2, 6, 5, 8, type);
    SparsifyGroupInputs inputs = random_inputs(problem, false);
    for (int i = 0; i < 8; ++i) inputs.text[i] = 0.0f;  // a zero token, so that all its similarities are 0
    for (int p = 0; p < 5; ++p) {
      for (int d = 0; d < 8; ++d) inputs.image[(5 + p) * 8 + d] = inputs.image[5 * 8 + d];  // makes all patches of image 1 equal
    }
    expect_as_naive(on, inputs);
    const SparsifyGroupResults ours = run(on, inputs);
    for (int d = 0; d < 8; ++d) EXPECT_EQ(ours.grad_text[d], 0.0f);
    for (int row = 6; row < 12; ++row) {
      for (int p = 0; p < 5; ++p) EXPECT_EQ(ours.weights[row * 5 + p], 0.2f);
    }
  }
}

TEST_P(SparsifyGroup, NearlyFlatRowsAreNotSpecial) {
  const SparsifyGroupProblem problem = problem_of(1, 2, 4, 2);
  SparsifyGroupInputs inputs = random_inputs(problem, false);
  inputs.text = {32768.0f, 1.0f, 8388608.0f, 1.0f};  // range of the similarities relative to their size: 9e-5 for token 0, 4e-7 for token 1
  inputs.image = {1.0f, 0.0f, 1.0f, 3.0f, 1.0f, 2.0f, 1.0f, 1.0f};
  inputs.grad = {0.5f, -1.0f, 2.0f, 0.25f};
  expect_as_naive(on, inputs);
}

TEST_P(SparsifyGroup, TinyMagnitudesNeedNoEpsilon) {
  SparsifyGroupInputs inputs = random_inputs(problem_of(1, 5, 12, 16), false);
  for (float& value : inputs.text) value *= 1e-9f;
  for (float& value : inputs.image) value *= 1e-6f;
  const SparsifyGroupResults ours = run(on, inputs);
  const SparsifyGroupExpected theirs = naive(inputs);
  expect_close("weights", ours.weights, theirs.weights, 1e-5);
  expect_close("grad_text", ours.grad_text, theirs.grad_text, 1e-5);
  expect_close("grad_image", ours.grad_image, theirs.grad_image, 1e-5);
}

TEST_P(SparsifyGroup, PaddingIsNeverReadAndGetsZeros) {
  // The last case is bfloat16 with the kernel for GPUs other than Hopper's.
  for (const int kind : {0, 1, 2}) {
    SparsifyGroupInputs clean = random_inputs(problem_of(3, 70, 10, 16, kind == 0 ? DataType::kFloat32 : DataType::kBfloat16), true);
    if (kind == 2) clean.problem.configuration = kSparsifyGroupConfigurations[0].name;
    for (int token = 0; token < 70; ++token) clean.mask[70 + token] = 0;  // a caption of only padding
    SparsifyGroupInputs dirty = clean;
    const float poison[] = {NAN, INFINITY, -INFINITY};
    for (std::size_t row = 0; row < dirty.mask.size(); ++row) {
      for (int d = 0; d < 16 && dirty.mask[row] == 0; ++d)
        dirty.text[row * 16 + d] = dirty.grad[row * 16 + d] = poison[(row + d) % 3];
    }
    const SparsifyGroupResults expected = run(on, clean), ours = run(on, dirty);
    expect_equal(ours, expected);
    for (std::size_t row = 0; row < dirty.mask.size(); ++row) {
      for (int d = 0; d < 16 && dirty.mask[row] == 0; ++d) {
        EXPECT_EQ(ours.grouped[row * 16 + d], 0.0f);
        EXPECT_EQ(ours.grad_text[row * 16 + d], 0.0f);
      }
    }
    for (int i = 10 * 16; i < 20 * 16; ++i) EXPECT_EQ(ours.grad_image[i], 0.0f);
  }
}

// The second NaN is the one that GPUs compute. If it is rounded like a number, it becomes -0.
TEST_P(SparsifyGroup, NanInARealTokenIsNotHidden) {
  for (const std::uint32_t bits : {0x7fc00000u, 0x7fffffffu}) {
    for (const int kind : {0, 1, 2}) {  // float32, with TensorFloat-32, and bfloat16
      SparsifyGroupInputs inputs = random_inputs(problem_of(1, 3, 6, 8, kind == 2 ? DataType::kBfloat16 : DataType::kFloat32), false);
      inputs.problem.tf32 = kind == 1;
      std::memcpy(&inputs.text[8], &bits, sizeof(bits));
      const SparsifyGroupResults ours = run(on, inputs);
      for (int d = 0; d < 8; ++d) {
        EXPECT_FALSE(std::isnan(ours.grouped[d]));
        EXPECT_TRUE(std::isnan(ours.grouped[8 + d]));
        EXPECT_TRUE(std::isnan(ours.grad_text[8 + d]));
      }
    }
  }
}

TEST_P(SparsifyGroup, RowsMayBeFartherApartThanTheirWidth) {
  for (const DataType type : {DataType::kFloat32, DataType::kBfloat16}) {
    for (const int padding : {8, 3}) {
      SparsifyGroupInputs inputs = random_inputs(problem_of(2, 9, 14, 24, type), true);
      inputs.row_padding = padding;
      expect_as_naive(on, inputs);
    }
  }
}

// Among the many values of large shapes, rounding could move some across the threshold. So similarities are small whole numbers, which
// every order of summation computes exactly, and no normalized similarity is near the threshold: they are fractions k / n with n < 200, and
// each of them differs from this threshold by at least 0.0008.
SparsifyGroupInputs whole_number_inputs(SparsifyGroupProblem problem) {
  problem.threshold = 0.33418f;
  SparsifyGroupInputs inputs = random_inputs(problem, true);
  for (std::int64_t token = 0; token < problem.tokens; ++token) inputs.mask[(problem.batch - 1) * problem.tokens + token] = 1;
  std::mt19937 generator(11);
  for (float& value : inputs.text) value = static_cast<float>(static_cast<int>(generator() % 3) - 1);
  for (float& value : inputs.image) value = static_cast<float>(static_cast<int>(generator() % 3) - 1);
  return inputs;
}

// The first shape has more pairs than blocks can run at once. The others have captions and features of training, and more patches.
TEST_P(SparsifyGroup, MatchesTheDefinitionAtTheSizesOfTraining) {
  constexpr std::int64_t shapes[][4] = {{300, 90, 20, 16}, {2, 55, 196, 512}, {2, 76, 196, 512}, {1, 55, 576, 128}};
  for (const auto& [batch, tokens, patches, width] : shapes) {
    for (const DataType type : {DataType::kFloat32, DataType::kBfloat16}) {
      SCOPED_TRACE(testing::Message() << batch << " x " << tokens << " x " << patches << " x " << width
                                      << (type == DataType::kFloat32 ? " float32" : " bfloat16"));
      expect_as_naive(on, whole_number_inputs(problem_of(batch, tokens, patches, width, type)));
    }
  }
}

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kBlockMemories[] = {227 * kKiB, 163 * kKiB, 99 * kKiB};  // of an H100, an A100, and an RTX 4090

// Also with less shared memory, so that tiles have fewer tokens and rings fewer buffers.
TEST_P(SparsifyGroup, EveryConfigurationMatchesTheDefinition) {
  if (on_cpu) GTEST_SKIP() << "configurations are for GPUs";
  constexpr std::int64_t shapes[][4] = {{1, 76, 196, 136}, {1, 55, 250, 40}, {1, 128, 33, 40}, {2, 1, 1, 8}, {1, 17, 8, 64},
                                        {1, 81, 15, 130},  {1, 16, 129, 72}, {1, 40, 300, 24}, {1, 18, 640, 40}};
  for (const SparsifyGroupConfiguration& configuration : kSparsifyGroupConfigurations) {
    for (const auto& [batch, tokens, patches, width] : shapes) {
      for (const DataType type : {DataType::kFloat32, DataType::kBfloat16}) {
        for (const std::size_t memory : kBlockMemories) {
          SparsifyGroupProblem problem = problem_of(batch, tokens, patches, width, type);
          problem.configuration = configuration.name;
          problem.block_memory = memory;
          if (make_plan(problem, Pass::kBackward, configuration, memory).configuration == nullptr) continue;
          SCOPED_TRACE(testing::Message() << configuration.name << " " << batch << " x " << tokens << " x " << patches << " x " << width
                                          << (type == DataType::kFloat32 ? " float32 " : " bfloat16 ") << memory);
          expect_as_naive(on, whole_number_inputs(problem));
        }
      }
    }
  }
}

// With masks (a mixed one, an empty one, and one without padding), with more pairs than the emulation has blocks, in both variants.
TEST_P(SparsifyGroup, EveryHopperConfigurationMatchesTheDefinition) {
  if (!runs_hopper_kernels(on)) GTEST_SKIP() << "for GPUs of compute capability 9.0";
  constexpr std::int64_t shapes[][4] = {{2, 55, 196, 512}, {2, 76, 196, 512}, {2, 80, 256, 768}, {3, 56, 256, 64}, {3, 8, 49, 64},
                                        {2, 1, 1, 8},      {3, 17, 130, 72},  {1, 64, 64, 136}};
  for (const SparsifyGroupHopperConfiguration& configuration : kSparsifyGroupHopperConfigurations) {
    for (const auto& [batch, tokens, patches, width] : shapes) {
      if (tokens > configuration.tokens) continue;
      SparsifyGroupProblem problem = problem_of(batch, tokens, patches, width, DataType::kBfloat16);
      problem.configuration = configuration.name;
      SCOPED_TRACE(testing::Message() << configuration.name << " " << batch << " x " << tokens << " x " << patches << " x " << width);
      SparsifyGroupInputs inputs = whole_number_inputs(problem);
      for (std::int64_t token = 0; batch > 1 && token < tokens; ++token) inputs.mask[tokens + token] = batch > 2 ? 0 : 1;
      expect_as_naive(on, inputs);
      if (width > 136) continue;
      expect_equal(in_reverse_order([&] { return run(on, inputs); }), run(on, inputs));
      inputs.problem.weights = PatchWeights::kSoftmax;
      inputs.problem.softmax_temperature = 3.0f;
      expect_as_naive(on, inputs);
    }
  }
}

TEST_P(SparsifyGroup, ErrorSaysThatAConfigurationIsForOtherProblems) {
  if (!runs_hopper_kernels(on)) GTEST_SKIP() << "for GPUs of compute capability 9.0";
  const auto message = [&](std::int64_t tokens, std::int64_t patches, std::int64_t width, DataType type) {
    SparsifyGroupForward arguments;
    arguments.problem = problem_of(1, tokens, patches, width, type);
    arguments.problem.configuration = "hopper/56x256";
    alignas(16) static float memory[4];
    arguments.text_tokens = arguments.image_tokens = {memory, width, width};
    arguments.grouped = {memory, width, width};
    return on.sparsify_group_forward(arguments).message();
  };
  const char* const expected = "sparsify_group: the configuration hopper/56x256 cannot process these arguments on this GPU";
  EXPECT_EQ(message(1, 1, 8, DataType::kFloat32), expected);
  EXPECT_EQ(message(57, 1, 8, DataType::kBfloat16), expected);
  EXPECT_EQ(message(1, 257, 8, DataType::kBfloat16), expected);
  EXPECT_EQ(message(1, 1, 4, DataType::kBfloat16), expected);
}

TEST_P(SparsifyGroup, ConfigurationsAgreeOnSimilarities) {
  if (on_cpu) GTEST_SKIP() << "configurations are for GPUs";
  for (const DataType type : {DataType::kFloat32, DataType::kBfloat16}) {
    std::vector<std::vector<float>> statistics;
    for (const std::string& name : sparsify_group_configurations()) {
      // Both passes use kernels for Hopper GPUs or none does, so only the emulation computes the same sums with both.
      if (name.starts_with("hopper/") && (on.name != "emulation" || type == DataType::kFloat32)) continue;
      SparsifyGroupInputs inputs = random_inputs(problem_of(1, 20, 50, 104, type), true);
      inputs.problem.configuration = name.c_str();
      const std::vector<float> all = run(on, inputs).row_statistics;
      std::vector<float> ranges;  // a configuration may add up weights in another order, but not the products of a similarity
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (i % kRowStatistics < 2) ranges.push_back(all[i]);
      }
      statistics.push_back(ranges);
      EXPECT_EQ(statistics.back(), statistics.front()) << name;
    }
  }
}

TEST_P(SparsifyGroup, TensorFloat32IsUsedOnRequestOnly) {
  SparsifyGroupInputs inputs = random_inputs(problem_of(1, 20, 30, 64), false);
  inputs.problem.threshold = 0.0f;
  const SparsifyGroupExpected theirs = naive(inputs);
  const SparsifyGroupResults exact = run(on, inputs);
  inputs.problem.tf32 = true;
  const SparsifyGroupResults rounded_products = run(on, inputs);
  expect_close("grouped", rounded_products.grouped, theirs.grouped, 2e-3);
  expect_close("grad_text", rounded_products.grad_text, theirs.grad_text, 2e-3);
  expect_close("grad_image", rounded_products.grad_image, theirs.grad_image, 2e-3);
  EXPECT_EQ(rounded_products.grouped == exact.grouped, on_cpu);
  expect_close("grouped", exact.grouped, theirs.grouped, 2e-6);
}

TEST_P(SparsifyGroup, IsDeterministic) {
  for (const DataType type : {DataType::kFloat32, DataType::kBfloat16}) {
    const SparsifyGroupInputs inputs = random_inputs(problem_of(3, 66, 30, 40, type), true);
    expect_equal(run(on, inputs), run(on, inputs));
  }
}

TEST_P(SparsifyGroup, WritesOnlyRequestedGradients) {
  for (const DataType type : {DataType::kFloat32, DataType::kBfloat16}) {
    SparsifyGroupInputs inputs = random_inputs(problem_of(1, 4, 6, 8, type), false);
    const SparsifyGroupResults both = run(on, inputs);
    Backend only_text = on;
    only_text.sparsify_group_backward = [&](SparsifyGroupBackward arguments) {
      arguments.grad_image_tokens = {};
      return on.sparsify_group_backward(arguments);
    };
    Backend only_image = on;
    only_image.sparsify_group_backward = [&](SparsifyGroupBackward arguments) {
      arguments.grad_text_tokens = {};
      return on.sparsify_group_backward(arguments);
    };
    const SparsifyGroupResults text = run(only_text, inputs), image = run(only_image, inputs);
    EXPECT_EQ(text.grad_text, both.grad_text);
    EXPECT_TRUE(std::isnan(text.grad_image[0]));
    EXPECT_EQ(image.grad_image, both.grad_image);
    EXPECT_TRUE(std::isnan(image.grad_text[0]));
  }
}

TEST_P(SparsifyGroup, AcceptsNoPairsAndNoTokens) {
  run(on, random_inputs(problem_of(0, 4, 6, 8), false));
  const SparsifyGroupResults ours = run(on, random_inputs(problem_of(2, 0, 6, 8), false));
  EXPECT_EQ(ours.grad_image, std::vector<float>(2 * 6 * 8, 0.0f));
}

TEST_P(SparsifyGroup, ErrorSaysThatABlockHasTooLittleMemory) {
  if (on_cpu) GTEST_SKIP() << "for GPUs";
  float value = 0.0f;
  SparsifyGroupForward arguments;
  arguments.problem = problem_of(1, 1, 1024, 8);
  arguments.problem.block_memory = 99 * kKiB;
  arguments.text_tokens = arguments.image_tokens = {&value, 8, 8};
  arguments.grouped = {&value, 8, 8};
  EXPECT_EQ(on.sparsify_group_forward(arguments).message(),
            "sparsify_group: no GPU kernel for this number of patches fits into the shared memory of a block");
}

TEST_P(SparsifyGroup, ErrorsNameBadArguments) {
  float value = 0.0f;
  const auto message = [&](auto change) {
    SparsifyGroupForward arguments;
    arguments.problem = problem_of(1, 1, 1, 8);
    arguments.text_tokens = arguments.image_tokens = {&value, 8, 8};
    arguments.grouped = {&value, 8, 8};
    change(arguments);
    return on.sparsify_group_forward(arguments).message();
  };
  EXPECT_EQ(message([](auto& a) { a.problem.patches = 0; }), "sparsify_group: patches must be at least 1, but is 0");
  EXPECT_EQ(message([](auto& a) { a.problem.batch = -1; }), "sparsify_group: batch must be at least 0, but is -1");
  EXPECT_EQ(message([](auto& a) { a.problem.width = 0; }), "sparsify_group: width must be at least 1, but is 0");
  EXPECT_EQ(message([](auto& a) { a.text_tokens.data = nullptr; }), "sparsify_group: text_tokens is a null pointer");
  EXPECT_EQ(message([](auto& a) { a.grouped.data = nullptr; }), "sparsify_group: grouped is a null pointer");
  EXPECT_EQ(message([](auto& a) {
              a.problem.tokens = 2;
              a.grouped.row_stride = 7;
            }),
            "sparsify_group: the row stride of grouped is 7, shorter than a row of 8 elements");
  EXPECT_EQ(message([](auto& a) { a.problem.threshold = 1.5f; }),
            "sparsify_group: threshold must be in [0, 1], but is 1.500000");
  EXPECT_EQ(message([](auto& a) {
              a.problem.weights = PatchWeights::kSoftmax;
              a.problem.softmax_temperature = 0.0f;
            }),
            "sparsify_group: softmax_temperature must be above 0, but is 0.000000");
  if (on.name == "emulation" || on.name == "cuda") {
    EXPECT_EQ(message([](auto& a) { a.problem.patches = 1025; }),
              "sparsify_group: patches must be at most 1024 on a GPU, but is 1025");
  } else {
    EXPECT_EQ(message([](auto&) {}), "sparsify_group: workspace is a null pointer");
  }
  SparsifyGroupBackward backward;
  backward.problem = problem_of(1, 1, 1, 8);
  backward.text_tokens = backward.image_tokens = backward.grad_grouped = {&value, 8, 8};
  EXPECT_EQ(on.sparsify_group_backward(backward).message(), "sparsify_group: row_statistics is a null pointer");
}

TEST(SparsifyGroupOnCpu, ResultsDoNotDependOnTheNumberOfThreads) {
  const SparsifyGroupInputs inputs = random_inputs(problem_of(7, 20, 30, 40), true);
  expect_equal(run(cpu_backend(5), inputs), run(cpu_backend(1), inputs));
}

TEST(SparsifyGroupOnCpu, UsesTheThreadsOfTheCaller) {
  int calls = 0;
  Parallel parallel;
  parallel.threads = 3;
  parallel.run = [&](int tasks, const std::function<void(int)>& body) {
    calls += tasks;
    for (int task = 0; task < tasks; ++task) body(task);
  };
  Backend on = cpu_backend();
  on.sparsify_group_workspace = [&](const auto& p, Pass pass) {
    return cpu::sparsify_group_workspace(p, pass, parallel);
  };
  on.sparsify_group_forward = [&](const auto& a) { return cpu::sparsify_group_forward(a, parallel); };
  on.sparsify_group_backward = [&](const auto& a) { return cpu::sparsify_group_backward(a, parallel); };
  expect_as_naive(on, random_inputs(problem_of(5, 4, 6, 8), false));
  EXPECT_EQ(calls, 6);
}

// If threads raced, their results would differ between two orders of execution.
TEST(SparsifyGroupEmulated, ResultsDoNotDependOnTheOrderOfThreads) {
  constexpr std::int64_t shapes[][2] = {{20, 40}, {76, 130}, {20, 300}, {10, 700}};
  for (const DataType type : {DataType::kFloat32, DataType::kBfloat16}) {
    for (const auto& [tokens, patches] : shapes) {
      for (const std::size_t memory : kBlockMemories) {
        SCOPED_TRACE(testing::Message() << tokens << " x " << patches << " " << memory);
        if (memory < sparsify_group_block_memory(patches, type)) continue;
        SparsifyGroupInputs inputs = random_inputs(problem_of(1, tokens, patches, 168, type), true);
        inputs.problem.block_memory = memory;
        const auto results = [&] { return run(emulation_backend(), inputs); };
        expect_equal(in_reverse_order(results), results());
      }
    }
  }
}

TEST(SparsifyGroupPlan, TokensArePaddedToSixteenAndPassOnceIfMemoryAllows) {
  const auto plan_of = [](std::int64_t tokens, std::int64_t patches, DataType type, Pass pass, std::size_t memory) {
    return choose_plan(problem_of(1, tokens, patches, 512, type), pass, {0, memory});
  };
  constexpr int expected[][3] = {{55, 1, 4}, {76, 1, 5}, {80, 1, 5}, {81, 2, 3}, {128, 2, 4}};
  for (const auto& [tokens, tiles, row_tiles] : expected) {
    const SparsifyGroupPlan plan = plan_of(tokens, 196, DataType::kBfloat16, Pass::kBackward, 227 * kKiB);
    EXPECT_EQ(plan.token_tiles, tiles) << tokens;
    EXPECT_EQ(plan.row_tiles, row_tiles) << tokens;
    EXPECT_LE(plan.bytes, 227 * kKiB);
    EXPECT_GT(plan.product_stages, 2);
    EXPECT_GT(plan.similarity_stages, 2);
  }
  // Two blocks of the forward pass fit into a multiprocessor.
  EXPECT_LE(plan_of(76, 196, DataType::kBfloat16, Pass::kForward, 227 * kKiB).bytes, 113 * kKiB);
  EXPECT_EQ(plan_of(76, 196, DataType::kBfloat16, Pass::kBackward, 99 * kKiB).token_tiles, 2);
}

TEST(SparsifyGroupPlan, SmallerGpusRunTheKernelsForUsualSizes) {
  EXPECT_LE(sparsify_group_block_memory(768, DataType::kBfloat16), 99 * kKiB);
  EXPECT_GT(sparsify_group_block_memory(769, DataType::kBfloat16), 99 * kKiB);
  EXPECT_LE(sparsify_group_block_memory(512, DataType::kFloat32), 99 * kKiB);
  EXPECT_GT(sparsify_group_block_memory(513, DataType::kFloat32), 99 * kKiB);
  EXPECT_LE(sparsify_group_block_memory(1024, DataType::kBfloat16), 163 * kKiB);
  EXPECT_LE(sparsify_group_block_memory(848, DataType::kFloat32), 163 * kKiB);
  EXPECT_GT(sparsify_group_block_memory(849, DataType::kFloat32), 163 * kKiB);
  EXPECT_LE(sparsify_group_block_memory(1024, DataType::kFloat32), 227 * kKiB);
  // A problem that just fits has a plan, and one byte less is too little.
  const SparsifyGroupProblem problem = problem_of(1, 76, 640, 512, DataType::kBfloat16);
  const std::size_t least = sparsify_group_block_memory(640, DataType::kBfloat16);
  for (const Pass pass : {Pass::kForward, Pass::kBackward}) EXPECT_NE(choose_plan(problem, pass, {0, least}).configuration, nullptr);
  EXPECT_EQ(choose_plan(problem, Pass::kBackward, {0, least - 1}).configuration, nullptr);
}

TEST(SparsifyGroupPlan, TableNamesConfigurationsThatTakeItsSizes) {
  for (const TunedChoice& choice : kSparsifyGroupChoices) {
    SparsifyGroupProblem problem = problem_of(1, choice.most_tokens, choice.most_patches, 512, choice.type);
    problem.configuration = choice.configuration;
    const TunedDevice device = {choice.compute_capability, 227 * kKiB};
    EXPECT_TRUE(choose_plan(problem, choice.pass, device).configuration != nullptr ||
                choose_hopper_plan(problem, choice.pass, device).configuration != nullptr)
        << choice.configuration;
  }
}

TEST(SparsifyGroupPlan, HopperKernelsProcessUsualSizesInBothPassesOrInNone) {
  const auto plan_of = [](std::int64_t tokens, std::int64_t patches, Pass pass, int compute_capability = 90, std::size_t memory = 227 * kKiB) {
    return choose_hopper_plan(problem_of(1, tokens, patches, 512, DataType::kBfloat16), pass, {compute_capability, memory});
  };
  for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
    EXPECT_EQ(plan_of(55, 196, pass).configuration, &kSparsifyGroupHopperConfigurations[0]);
    EXPECT_EQ(plan_of(76, 196, pass).configuration, &kSparsifyGroupHopperConfigurations[1]);
    EXPECT_EQ(plan_of(76, 196, pass).stages, 4);
    EXPECT_EQ(plan_of(80, 256, Pass::kBackward).stages, 3);
    EXPECT_LE(plan_of(80, 256, pass).bytes, 227 * kKiB);
    EXPECT_EQ(plan_of(81, 196, pass).configuration, nullptr);
    EXPECT_EQ(plan_of(55, 257, pass).configuration, nullptr);
    EXPECT_EQ(plan_of(55, 196, pass, 100).configuration, nullptr);
    EXPECT_EQ(plan_of(80, 256, pass, 90, 120 * kKiB).configuration, nullptr);  // too little for the backward pass
  }
}

TEST(KeptFrom, MatchesTheDivision) {
  std::mt19937 generator(3);
  for (int i = 0; i < 20000; ++i) {
    const float range = std::ldexp(static_cast<float>(1 + generator() % 1000), static_cast<int>(generator() % 40) - 30);
    const float threshold = i % 2 == 0 ? 1.0f / static_cast<float>(1 + generator() % 1024)
                                       : static_cast<float>(generator() % 1001) / 1000.0f;
    const float cut = kept_from(range, threshold);
    EXPECT_TRUE(cut / range >= threshold) << range << " " << threshold;
    EXPECT_FALSE(cut > 0.0f && std::nextafter(cut, 0.0f) / range >= threshold) << range << " " << threshold;
  }
}

}  // namespace
}  // namespace tessera::kernels::test
