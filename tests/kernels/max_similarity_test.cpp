#include "kernels/max_similarity/max_similarity.h"

#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "kernels/max_similarity/configurations.h"
#include "tests/kernels/backend.h"
#include "tests/kernels/product_hopper.h"

namespace tessera::kernels::test {
namespace {

using Place = MaxSimilarityProblem::Place;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Inputs {
  MaxSimilarityProblem problem;  // its configuration is for the forward pass
  std::vector<float> patches, tokens, grad_i2t, grad_t2i;
  std::vector<std::uint8_t> patch_keep, token_keep;
  const char* backward = nullptr;  // configuration
};

struct Results {
  std::vector<float> i2t, t2i, grad_patches, grad_tokens;
  std::vector<Place> best_token, best_patch;
};

struct Style {
  bool drops = true;           // whether about a quarter of the rows are dropped
  bool whole_numbers = false;  // whether entries are whole numbers: products are then exact, and many are equal
};

MaxSimilarityProblem typed(MaxSimilarityProblem problem, DataType type) {
  problem.type = type;
  return problem;
}

Inputs random_inputs(const MaxSimilarityProblem& problem, const Style& style = {}) {
  std::mt19937 generator(static_cast<unsigned>(problem.patches * 31 + problem.tokens));
  std::normal_distribution<float> normal;
  const auto numbers = [&](std::int64_t count) {
    std::vector<float> values(count);
    for (float& value : values)
      value = style.whole_numbers ? static_cast<float>(static_cast<int>(generator() % 3) - 1) : normal(generator);
    return values;
  };
  const auto keeps = [&](std::int64_t count) {
    std::vector<std::uint8_t> keep(count);
    for (std::uint8_t& k : keep) k = !style.drops || generator() % 4 != 0;
    return keep;
  };
  Inputs inputs{problem,
                rounded(numbers(problem.images * problem.patches * problem.width), problem.type),
                rounded(numbers(problem.texts * problem.tokens * problem.width), problem.type),
                numbers(problem.images * problem.texts),
                numbers(problem.images * problem.texts),
                keeps(problem.images * problem.patches),
                keeps(problem.texts * problem.tokens),
                nullptr};
  for (std::int64_t b = 0; b < problem.images; ++b) inputs.patch_keep[b * problem.patches] = 1;
  return inputs;
}

std::vector<Place> places_of(Buffer& buffer) {
  const std::vector<unsigned char> bytes = buffer.read();
  std::vector<Place> places(bytes.size() / sizeof(Place));
  if (!bytes.empty()) std::memcpy(places.data(), bytes.data(), bytes.size());
  return places;
}

Results run(const Backend& on, const Inputs& in) {
  const MaxSimilarityProblem& problem = in.problem;
  MaxSimilarityProblem backward = problem;
  backward.configuration = in.backward;
  const std::int64_t pairs = problem.images * problem.texts;
  const auto numbers = [&](const std::vector<float>& values, DataType type) {
    return on.allocate(to_bytes(values, type));
  };
  const auto empty = [&](std::size_t count, DataType type) { return numbers(std::vector<float>(count, kNaN), type); };
  const auto places = [&](std::int64_t count) {
    return on.allocate(std::vector<unsigned char>(count * sizeof(Place), 0xff));
  };
  const auto workspace = [&](const MaxSimilarityProblem& of, Pass pass) {
    return on.allocate(std::vector<unsigned char>(on.max_similarity_workspace(of, pass), 0xff));
  };
  auto patches = numbers(in.patches, problem.type), tokens = numbers(in.tokens, problem.type),
       grad_i2t = numbers(in.grad_i2t, DataType::kFloat32), grad_t2i = numbers(in.grad_t2i, DataType::kFloat32);
  auto patch_keep = on.allocate(in.patch_keep), token_keep = on.allocate(in.token_keep);
  auto i2t = empty(pairs, DataType::kFloat32), t2i = empty(pairs, DataType::kFloat32),
       grad_patches = empty(in.patches.size(), problem.type), grad_tokens = empty(in.tokens.size(), problem.type);
  auto best_token = places(pairs * problem.patches), best_patch = places(pairs * problem.tokens);
  auto forward_memory = workspace(problem, Pass::kForward), backward_memory = workspace(backward, Pass::kBackward);
  expect_ok(on.max_similarity_forward(
      {problem, patches->data(), tokens->data(), static_cast<std::uint8_t*>(patch_keep->data()),
       static_cast<std::uint8_t*>(token_keep->data()), static_cast<float*>(i2t->data()),
       static_cast<float*>(t2i->data()), static_cast<Place*>(best_token->data()),
       static_cast<Place*>(best_patch->data()), forward_memory->data()}));
  expect_ok(on.max_similarity_backward(
      {backward, patches->data(), tokens->data(), static_cast<std::uint8_t*>(patch_keep->data()),
       static_cast<std::uint8_t*>(token_keep->data()), static_cast<Place*>(best_token->data()),
       static_cast<Place*>(best_patch->data()), static_cast<float*>(grad_i2t->data()),
       static_cast<float*>(grad_t2i->data()), grad_patches->data(), grad_tokens->data(), backward_memory->data()}));
  return {from_bytes(i2t->read(), DataType::kFloat32),
          from_bytes(t2i->read(), DataType::kFloat32),
          from_bytes(grad_patches->read(), problem.type),
          from_bytes(grad_tokens->read(), problem.type),
          places_of(*best_token),
          places_of(*best_patch)};
}

// Computes the results by their definition, with plain loops in double. Each maximum's gradient goes to the row that the kernel chose. The
// chosen row must be kept and have the largest product. If `first` is true (for entries that are whole numbers), it must be the first row
// with the largest product.
class Definition {
 public:
  std::vector<double> i2t, t2i, grad_patches, grad_tokens;

  Definition(const Inputs& in, const Results& ours, bool first) : in_(in), ours_(ours), first_(first) {
    const MaxSimilarityProblem& problem = in.problem;
    i2t.resize(problem.images * problem.texts);
    t2i.resize(problem.images * problem.texts);
    grad_patches.resize(in.patches.size());
    grad_tokens.resize(in.tokens.size());
    for (std::int64_t b = 0; b < problem.images; ++b) {
      for (std::int64_t c = 0; c < problem.texts; ++c) add_pair(b, c);
    }
  }

 private:
  static std::vector<std::int64_t> kept(const std::vector<std::uint8_t>& keep, std::int64_t group, std::int64_t size) {
    std::vector<std::int64_t> result;
    for (std::int64_t i = 0; i < size; ++i)
      if (keep[group * size + i] != 0) result.push_back(i);
    return result;
  }

  struct Maximum {
    double value;
    std::int64_t place;
  };

  // Returns the maximum of `products` over `candidates`. Checks that `chosen`, the kernel's choice, is a candidate with this maximum.
  template <class Products>
  Maximum maximum(const Products& products, const std::vector<std::int64_t>& candidates, Place chosen) const {
    std::int64_t best = candidates.front();
    for (const std::int64_t each : candidates)
      if (products(each) > products(best)) best = each;
    const bool is_candidate = std::count(candidates.begin(), candidates.end(), chosen) > 0;
    const bool is_best = is_candidate && (first_ ? chosen == best : products(chosen) >= products(best) - 1e-3);
    EXPECT_TRUE(is_best) << chosen << " is chosen instead of " << best;
    return {products(best), is_best ? chosen : best};
  }

  void add(std::int64_t b, std::int64_t p, std::int64_t c, std::int64_t r, double weight) {
    const std::int64_t width = in_.problem.width, patch = (b * in_.problem.patches + p) * width,
                       token = (c * in_.problem.tokens + r) * width;
    for (std::int64_t d = 0; d < width; ++d) {
      grad_patches[patch + d] += weight * in_.tokens[token + d];
      grad_tokens[token + d] += weight * in_.patches[patch + d];
    }
  }

  void add_pair(std::int64_t b, std::int64_t c) {
    const auto [images, patches, texts, tokens, width, type, configuration] = in_.problem;
    const std::int64_t place = b * texts + c;
    const std::vector<std::int64_t> kept_patches = kept(in_.patch_keep, b, patches),
                                    kept_tokens = kept(in_.token_keep, c, tokens);
    if (kept_patches.empty() || kept_tokens.empty()) return;
    std::vector<double> products(patches * tokens);
    for (const std::int64_t p : kept_patches) {
      for (const std::int64_t r : kept_tokens) {
        for (std::int64_t d = 0; d < width; ++d)
          products[p * tokens + r] +=
              double{in_.patches[(b * patches + p) * width + d]} * in_.tokens[(c * tokens + r) * width + d];
      }
    }
    for (const std::int64_t p : kept_patches) {
      const auto of_token = [&, words = tokens](std::int64_t r) { return products[p * words + r]; };
      const Maximum best = maximum(of_token, kept_tokens, ours_.best_token[place * patches + p]);
      i2t[place] += best.value / static_cast<double>(kept_patches.size());
      add(b, p, c, best.place, in_.grad_i2t[place] / static_cast<double>(kept_patches.size()));
    }
    for (const std::int64_t r : kept_tokens) {
      const auto of_patch = [&, words = tokens](std::int64_t p) { return products[p * words + r]; };
      const Maximum best = maximum(of_patch, kept_patches, ours_.best_patch[place * tokens + r]);
      t2i[place] += best.value / static_cast<double>(kept_tokens.size());
      add(b, best.place, c, r, in_.grad_t2i[place] / static_cast<double>(kept_tokens.size()));
    }
  }

  const Inputs& in_;
  const Results& ours_;
  bool first_;
};

void expect_equal(const Results& ours, const Results& theirs) {
  EXPECT_EQ(ours.i2t, theirs.i2t);
  EXPECT_EQ(ours.t2i, theirs.t2i);
  EXPECT_EQ(ours.best_token, theirs.best_token);
  EXPECT_EQ(ours.best_patch, theirs.best_patch);
  EXPECT_EQ(ours.grad_patches, theirs.grad_patches);
  EXPECT_EQ(ours.grad_tokens, theirs.grad_tokens);
}

/// Whether the backend is a GPU of compute capability 9.0, or its emulation.
bool runs_hopper_kernels(const Backend& on) {
#if defined(TESSERA_TEST_CUDA)
  if (on.name == "cuda") return cuda::runs_hopper_kernels();
#endif
  return on.name == "emulation";
}

class MaxSimilarityKernel : public KernelTest {
 protected:
  Results expect_as_defined(const Inputs& inputs, bool whole_numbers = false) {
    const MaxSimilarityProblem& problem = inputs.problem;
    SCOPED_TRACE(testing::Message() << problem.images << " x " << problem.patches << " patches, " << problem.texts
                                    << " x " << problem.tokens << " tokens, width " << problem.width
                                    << (problem.type == DataType::kBfloat16 ? ", bfloat16" : ""));
    const Results ours = run(on, inputs);
    const Definition theirs(inputs, ours, whole_numbers);
    const double rounding = problem.type == DataType::kFloat32 ? 1e-5 : 4e-3;
    expect_close("i2t", ours.i2t, theirs.i2t, 1e-5);
    expect_close("t2i", ours.t2i, theirs.t2i, 1e-5);
    expect_close("grad_patches", ours.grad_patches, theirs.grad_patches, rounding);
    expect_close("grad_tokens", ours.grad_tokens, theirs.grad_tokens, rounding);
    return ours;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, MaxSimilarityKernel, testing::ValuesIn(backend_names()), test_name<std::string>);

TEST_P(MaxSimilarityKernel, MatchesTheDefinitionAtManyShapes) {
  const MaxSimilarityProblem problems[] = {{1, 1, 1, 1, 1},      {2, 7, 3, 5, 8},      {3, 16, 2, 4, 24},
                                           {2, 33, 3, 17, 5},    {1, 49, 4, 1, 16},    {2, 64, 2, 15, 40},
                                           {1, 197, 2, 29, 130}, {2, 3, 5, 80, 8},     {17, 5, 19, 3, 12},
                                           {2, 65, 5, 64, 72},   {1, 270, 1, 170, 16}, {1, 60, 9, 81, 33}};
  for (const DataType type : types()) {
    for (const MaxSimilarityProblem& problem : problems) {
      expect_as_defined(random_inputs(typed(problem, type), {.drops = false}));
      expect_as_defined(random_inputs(typed(problem, type)));
    }
  }
}

TEST_P(MaxSimilarityKernel, MatchesTheDefinitionAtTheSizesOfTraining) {
  for (const DataType type : types()) expect_as_defined(random_inputs(typed({2, 196, 5, 76, 512}, type)));
  for (const std::int64_t tokens : {55, 76}) expect_as_defined(random_inputs(typed({2, 196, 3, tokens, 256}, types().back())));
}

TEST_P(MaxSimilarityKernel, EveryConfigurationMatchesTheDefinition) {
  if (on_cpu) GTEST_SKIP() << "configurations are for GPUs";
  for (const MaxSimilarityConfiguration& configuration : kMaxSimilarityConfigurations) {
    if (configuration.tokens > 0 && !runs_hopper_kernels(on)) continue;
    SCOPED_TRACE(configuration.name);
    const std::int64_t most = configuration.tokens == 0 ? 56 : configuration.tokens;
    for (const MaxSimilarityProblem& problem : {MaxSimilarityProblem{2, 196, 3, most, 72}, MaxSimilarityProblem{1, 130, 20, 13, 32},
                                                MaxSimilarityProblem{2, 256, 1, 9, 104}}) {
      for (const DataType type : types()) {
        for (const bool drops : {false, true}) {
          Inputs inputs = random_inputs(typed(problem, type), {.drops = drops});
          inputs.problem.configuration = configuration.name;
          expect_as_defined(inputs);
        }
      }
      Inputs equal = random_inputs(problem, {.whole_numbers = true});
      equal.problem.configuration = configuration.name;
      expect_as_defined(equal, /*whole_numbers=*/true);
    }
  }
}

TEST_P(MaxSimilarityKernel, EveryBackwardConfigurationMatchesTheDefinition) {
  if (on_cpu) GTEST_SKIP() << "configurations are for GPUs";
  // The benchmark's sizes; rows of many texts and images in a block, and more columns than a block has; the largest sizes of the kernel for
  // Hopper GPUs.
  const MaxSimilarityProblem problems[] = {{2, 196, 3, 55, 256}, {9, 33, 20, 16, 200}, {1, 1024, 2, 17, 8}, {2, 16, 1, 1024, 136}};
  for (const char* const configuration : kMaxSimilarityBackwardConfigurations) {
    if (configuration == std::string("hopper") && !runs_hopper_kernels(on)) continue;
    SCOPED_TRACE(configuration);
    for (const MaxSimilarityProblem& problem : problems) {
      for (const DataType type : types()) {
        Inputs inputs = random_inputs(typed(problem, type), {.drops = problem.width != 256});
        inputs.backward = configuration;
        expect_as_defined(inputs);
      }
    }
  }
}

TEST_P(MaxSimilarityKernel, GradientsOfRowsThatChooseEachOtherAreExactInBothParts) {
  if (on_cpu || !runs_hopper_kernels(on)) GTEST_SKIP() << "a test of a kernel for Hopper GPUs";
  // Each patch is a token, so they choose each other. Their weight is the sum of two numbers that bfloat16 cannot represent.
  Inputs inputs = random_inputs({1, 16, 1, 16, 16}, {.drops = false});
  std::fill(inputs.patches.begin(), inputs.patches.end(), 0.0f);
  for (int i = 0; i < 16; ++i) inputs.patches[17 * i] = 1.0f;
  inputs.tokens = inputs.patches;
  inputs.grad_i2t = {16.0f * (1.0f + 0x1p-9f)};
  inputs.grad_t2i = {16.0f * (1.0f + 0x1p-8f + 0x1p-12f)};
  const Results ours = run(on, inputs);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(ours.grad_patches[i], i % 17 == 0 ? 2.0f + 0x1p-9f + 0x1p-8f + 0x1p-12f : 0.0f) << i;
  EXPECT_EQ(ours.grad_tokens, ours.grad_patches);
}

TEST_P(MaxSimilarityKernel, RefusesAConfigurationThatCannotProcessTheProblem) {
  if (on_cpu) GTEST_SKIP() << "configurations are for GPUs";
  const auto message = [&](const char* configuration, std::int64_t patches, std::int64_t tokens) {
    const Inputs inputs = random_inputs({1, patches, 1, tokens, 8});
    const MaxSimilarityProblem& problem = inputs.problem;
    auto memory = on.allocate(std::vector<unsigned char>(on.max_similarity_workspace(problem, Pass::kForward)));
    auto any = on.allocate(std::vector<unsigned char>(static_cast<std::size_t>(patches * 64)));
    MaxSimilarityForward call;
    call.problem = problem;
    call.problem.configuration = configuration;
    call.patches = call.tokens = any->data();
    call.patch_keep = call.token_keep = static_cast<std::uint8_t*>(any->data());
    auto similarities = on.allocate(std::vector<unsigned char>(8));
    call.i2t = static_cast<float*>(similarities->data());
    call.t2i = call.i2t + 1;
    auto places = on.allocate(std::vector<unsigned char>(static_cast<std::size_t>(2 * (patches + tokens))));
    call.best_token = static_cast<Place*>(places->data());
    call.best_patch = call.best_token + patches;
    call.workspace = memory->data();
    return on.max_similarity_forward(call).message();
  };
  EXPECT_EQ(message("hopper/80", 128, 4), "max_similarity: the configuration hopper/80 cannot process these arguments on this GPU");
  EXPECT_EQ(message("hopper/80", 257, 4), "max_similarity: the configuration hopper/80 cannot process these arguments on this GPU");
  EXPECT_EQ(message("hopper/80", 196, 81), "max_similarity: the configuration hopper/80 cannot process these arguments on this GPU");
  EXPECT_EQ(message("hopper/8", 196, 4), "max_similarity: the configuration hopper/8 cannot process these arguments on this GPU");
}

TEST(MaxSimilarityPlan, HopperGradientsNeedRowsOfSixteenBytesAndSixteenRows) {
  const auto takes = [](std::int64_t patches, std::int64_t tokens, std::int64_t width, const char* configuration = nullptr,
                        int compute_capability = 90) {
    MaxSimilarityProblem problem{4, patches, 5, tokens, width};
    problem.configuration = configuration;
    return takes_hopper_gradients(problem, {compute_capability, 227 * 1024});
  };
  EXPECT_TRUE(takes(196, 55, 256));
  EXPECT_TRUE(takes(16, 16, 8, "hopper"));
  EXPECT_FALSE(takes(196, 55, 256, "gather"));
  EXPECT_FALSE(takes(196, 55, 256, nullptr, 80));
  EXPECT_FALSE(takes(196, 55, 252));
  EXPECT_FALSE(takes(15, 55, 256));
  EXPECT_FALSE(takes(196, 1025, 256));
  EXPECT_FALSE(takes_hopper_gradients({0, 196, 5, 55, 256}, {90, 227 * 1024}));
  EXPECT_EQ(gradient_plan({256, 196, 256, 55, 256}, true, {90, 227 * 1024}).slots, 3);
  EXPECT_EQ(gradient_plan({256, 196, 256, 55, 256}, false, {90, 227 * 1024}).slots, 6);
}

TEST(MaxSimilarityPlan, HopperKernelsProcessImagesThatFitIntoSharedMemory) {
  const auto takes = [](std::int64_t width, std::int64_t tokens, int compute_capability = 90) {
    return hopper_plan({8, 196, 8, tokens, width, DataType::kBfloat16}, (width + 63) / 64, kMaxSimilarityConfigurations[1],
                       {compute_capability, 227 * 1024});
  };
  EXPECT_EQ(takes(256, 55).stages, 6);
  EXPECT_NE(takes(256, 55).configuration, nullptr);
  EXPECT_EQ(takes(256, 57).configuration, nullptr);
  EXPECT_EQ(takes(512, 55).configuration, nullptr);
  EXPECT_EQ(takes(256, 55, 80).configuration, nullptr);
}

TEST(MaxSimilarityBlockMemory, ExceedsThatOfSmallerGpusForLongTextsOnly) {
  constexpr std::size_t kSmaller = 101376;  // what a block can use with compute capability 8.6, 8.9 and 12
  EXPECT_EQ(emulation::max_similarity_block_memory({8, 64, 8, 77, 512}), 120448u);
  EXPECT_LE(emulation::max_similarity_block_memory({8, 64, 8, 64, 512}), kSmaller);
  EXPECT_LE(emulation::max_similarity_block_memory({8, 65, 8, 435, 512}), kSmaller);
  EXPECT_GT(emulation::max_similarity_block_memory({8, 65, 8, 436, 512}), kSmaller);
}

TEST_P(MaxSimilarityKernel, FindsMaximaBelowZero) {
  for (const DataType type : types()) {
    for (const MaxSimilarityProblem& problem :
         {MaxSimilarityProblem{2, 70, 3, 13, 8}, MaxSimilarityProblem{1, 5, 9, 90, 8}}) {
      Inputs inputs = random_inputs(typed(problem, type));
      for (float& value : inputs.patches) value = std::abs(value);
      for (float& value : inputs.tokens) value = -std::abs(value);
      expect_as_defined(inputs);
    }
  }
}

TEST_P(MaxSimilarityKernel, ChoosesTheFirstOfEqualMaxima) {
  for (const DataType type : types()) {
    for (const MaxSimilarityProblem& problem :
         {MaxSimilarityProblem{2, 40, 3, 12, 4}, MaxSimilarityProblem{1, 300, 5, 9, 3},
          MaxSimilarityProblem{2, 9, 2, 170, 3}}) {
      expect_as_defined(random_inputs(typed(problem, type), {.whole_numbers = true}), /*whole_numbers=*/true);
    }
  }
}

TEST_P(MaxSimilarityKernel, UnkeptRowIsNeverRead) {
  for (const DataType type : types()) {
    const Inputs plain = random_inputs(typed({3, 150, 5, 9, 8}, type));
    Inputs filled = plain;
    for (std::size_t i = 0; i < filled.patches.size(); ++i)
      if (plain.patch_keep[i / 8] == 0) filled.patches[i] = i % 2 == 0 ? kNaN : INFINITY;
    for (std::size_t i = 0; i < filled.tokens.size(); ++i)
      if (plain.token_keep[i / 8] == 0) filled.tokens[i] = i % 2 == 0 ? kNaN : INFINITY;
    const Results ours = run(on, filled);
    expect_equal(ours, run(on, plain));
    for (std::size_t i = 0; i < ours.grad_tokens.size(); ++i) {
      if (plain.token_keep[i / 8] == 0) {
        EXPECT_EQ(ours.grad_tokens[i], 0.0f);
      }
    }
    for (std::size_t i = 0; i < ours.best_token.size(); ++i) {
      if (plain.patch_keep[i / (5 * 150) * 150 + i % 150] == 0) {
        EXPECT_EQ(ours.best_token[i], 0);
      }
    }
  }
}

TEST_P(MaxSimilarityKernel, TextWithoutTokensHasSimilarityZeroAndNoGradient) {
  for (const DataType type : types()) {
    for (const std::int64_t patches : {6, 130}) {
      Inputs inputs = random_inputs(typed({3, patches, 4, 4, 8}, type));
      std::fill_n(inputs.token_keep.begin() + 4, 4, 0);                  // drops all tokens of text 1
      std::fill_n(inputs.patch_keep.begin() + 2 * patches, patches, 0);  // drops all patches of image 2
      std::fill_n(inputs.tokens.begin() + 4 * 8, 4 * 8, kNaN);
      const Results ours = expect_as_defined(inputs);
      for (int b = 0; b < 3; ++b) {
        for (int c = 0; c < 4; ++c) {
          if (b < 2 && c != 1) continue;
          EXPECT_EQ(ours.i2t[b * 4 + c], 0.0f);
          EXPECT_EQ(ours.t2i[b * 4 + c], 0.0f);
          for (int p = 0; p < patches; ++p) EXPECT_EQ(ours.best_token[(b * 4 + c) * patches + p], 0);
          for (int r = 0; r < 4; ++r) EXPECT_EQ(ours.best_patch[(b * 4 + c) * 4 + r], 0);
        }
      }
    }
  }
}

TEST_P(MaxSimilarityKernel, KeptNanOrInfinityMakesItsPairsNan) {
  for (const DataType type : types()) {
    for (const float value : {kNaN, INFINITY, -INFINITY}) {
      const Inputs plain = random_inputs(typed({2, 140, 3, 5, 8}, type), {.drops = false});
      Inputs in_image = plain, in_text = plain;
      in_image.patches[130 * 8] = value;            // in image 0
      in_text.tokens[(1 * 5 + 2) * 8 + 4] = value;  // in text 1
      const Results of_image = run(on, in_image), of_text = run(on, in_text);
      for (const Results* each : {&of_image, &of_text}) {  // the backward pass uses best_token and best_patch, so they must be valid
        for (const Place place : each->best_token) EXPECT_TRUE(place >= 0 && place < 5) << place;
        for (const Place place : each->best_patch) EXPECT_TRUE(place >= 0 && place < 140) << place;
      }
      for (int b = 0; b < 2; ++b) {
        for (int c = 0; c < 3; ++c) {
          const int pair = b * 3 + c;
          EXPECT_EQ(std::isnan(of_image.i2t[pair]), b == 0);
          EXPECT_EQ(std::isnan(of_image.t2i[pair]), b == 0);
          EXPECT_EQ(std::isnan(of_text.i2t[pair]), c == 1);
          EXPECT_EQ(std::isnan(of_text.t2i[pair]), c == 1);
        }
      }
    }
  }
}

TEST_P(MaxSimilarityKernel, IsDeterministic) {
  Inputs inputs = random_inputs(typed({5, 150, 7, 20, 40}, types().back()));
  for (const char* const backward : {static_cast<const char*>(nullptr), kMaxSimilarityBackwardConfigurations[0]}) {
    inputs.backward = backward;
    expect_equal(in_reverse_order([&] { return run(on, inputs); }), run(on, inputs));
  }
}

TEST_P(MaxSimilarityKernel, WithoutPairsGradientsAreZero) {
  for (const MaxSimilarityProblem& problem : {MaxSimilarityProblem{2, 3, 0, 5, 6}, MaxSimilarityProblem{0, 3, 4, 5, 6},
                                              MaxSimilarityProblem{2, 3, 4, 0, 6}}) {
    const Inputs inputs = random_inputs(problem);
    const Results ours = run(on, inputs);
    EXPECT_EQ(ours.grad_patches, std::vector<float>(inputs.patches.size(), 0.0f));
    EXPECT_EQ(ours.grad_tokens, std::vector<float>(inputs.tokens.size(), 0.0f));
    EXPECT_EQ(ours.i2t, std::vector<float>(problem.images * problem.texts, 0.0f));
  }
}

TEST(MaxSimilarityKernelCpu, ThreadsChangeNothing) {
  const Inputs inputs = random_inputs({5, 19, 7, 6, 16});
  const Results expected = run(cpu_backend(1), inputs);
  for (const int threads : {2, 3, 16}) expect_equal(run(cpu_backend(threads), inputs), expected);
}

TEST(MaxSimilarityKernelArguments, AcceptsEmptyBatchesAndNamesMistakes) {
  const auto forward = [](const MaxSimilarityProblem& problem) {
    MaxSimilarityForward call;
    call.problem = problem;
    return call;
  };
  EXPECT_TRUE(cpu::max_similarity_forward(forward({0, 3, 4, 5, 6})).ok());
  EXPECT_TRUE(emulation::max_similarity_forward(forward({2, 3, 0, 5, 6}), nullptr).ok());
  EXPECT_EQ(check(forward({1, 0, 1, 1, 1})).message(), "max_similarity: patches must be at least 1, but is 0");
  EXPECT_EQ(check(forward({1, 32768, 1, 1, 1})).message(),
            "max_similarity: patches must be at most 32767, but is 32768");
  EXPECT_EQ(check(forward({1, 1, 1, 1, 1})).message(), "max_similarity: patches is a null pointer");
  EXPECT_EQ(cpu::max_similarity_forward(forward({0, 3, 4, 5, 6, DataType::kBfloat16})).message(),
            "max_similarity: the CPU has only a float32 kernel");
  const Inputs inputs = random_inputs({1, 1, 1, 1025, 1});
  std::vector<float> numbers(2);
  std::vector<Place> places(1026);
  const MaxSimilarityForward call{inputs.problem,
                                  inputs.patches.data(),
                                  inputs.tokens.data(),
                                  inputs.patch_keep.data(),
                                  inputs.token_keep.data(),
                                  &numbers[0],
                                  &numbers[1],
                                  &places[0],
                                  &places[1]};
  EXPECT_EQ(emulation::max_similarity_forward(call, nullptr).message(),
            "max_similarity: tokens must be at most 1024 on a GPU, but is 1025");
}

}  // namespace
}  // namespace tessera::kernels::test
