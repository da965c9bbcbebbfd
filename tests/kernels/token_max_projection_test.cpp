#include <cmath>

#include <gtest/gtest.h>

#include "kernels/token_max_projection/configurations.h"
#include "tests/kernels/backend.h"
#include "tests/kernels/product_hopper.h"
#include "tests/kernels/sparsify_group_case.h"

namespace tessera::kernels::test {
namespace {

struct ProjectionInputs {
  TokenMaxProjectionProblem problem;
  std::vector<float> tokens, table, bias, gradient;  // [B, N, w], [V, w], [V] and, for the encoding's gradient, [B, V]
  std::vector<std::uint8_t> mask;                    // [B, N]; empty means no mask
  bool real(std::int64_t sample, std::int64_t position) const {
    return mask.empty() || mask[sample * problem.positions + position] != 0;
  }
};

struct ProjectionResults {
  std::vector<float> encoding, grad_tokens, grad_table;
  std::vector<std::int64_t> argmax;
};

void expect_equal(const ProjectionResults& ours, const ProjectionResults& theirs) {
  EXPECT_EQ(ours.encoding, theirs.encoding);
  EXPECT_EQ(ours.argmax, theirs.argmax);
  EXPECT_EQ(ours.grad_tokens, theirs.grad_tokens);
  EXPECT_EQ(ours.grad_table, theirs.grad_table);
}

struct ProjectionShape {
  std::int64_t batch, positions, vocabulary, width;
  bool masked = true;
};

ProjectionInputs random_projection(const ProjectionShape& s, DataType type) {
  ProjectionInputs in;
  in.problem = {s.batch, s.positions, s.vocabulary, s.width, type};
  in.tokens = rounded(normal_values(s.batch * s.positions * s.width, 1), type);
  in.table = rounded(normal_values(s.vocabulary * s.width, 2), type);
  in.bias = normal_values(s.vocabulary, 3);
  in.gradient = normal_values(s.batch * s.vocabulary, 4);
  if (!s.masked) return in;
  for (std::int64_t i = 0; i < s.batch * s.positions; ++i) in.mask.push_back(i * 7 % 11 < 6 ? 1 : 0);
  for (std::int64_t n = 0; n < s.positions; ++n) in.mask[(s.batch - 1) * s.positions + n] = s.batch > 1 ? 0 : 1;
  return in;
}

/// Returns the derivative d encoding / d maximum at this encoding. It is 0 if the encoding is 0.
double slope(double encoding) {
  return encoding == 0 ? 0 : std::exp(-encoding);
}

ProjectionResults run_projection(const Backend& on, const ProjectionInputs& in) {
  const TokenMaxProjectionProblem& problem = in.problem;
  const std::size_t entries = static_cast<std::size_t>(problem.batch * problem.vocabulary);
  const auto typed = [&](const std::vector<float>& values) { return on.allocate(to_bytes(values, problem.type)); };
  const auto floats = [&](const std::vector<float>& values) {
    return on.allocate(to_bytes(values, DataType::kFloat32));
  };
  auto tokens = typed(in.tokens), table = typed(in.table), bias = floats(in.bias);
  auto mask = on.allocate(in.mask);
  auto encoding = floats(std::vector<float>(entries, NAN));
  auto argmax = on.allocate(std::vector<unsigned char>(entries * sizeof(std::int64_t), 0xff));
  TokenMaxProjectionForward forward;
  forward.problem = problem;
  forward.tokens = tokens->data();
  if (!in.mask.empty()) forward.mask = static_cast<const std::uint8_t*>(mask->data());
  forward.table = table->data();
  forward.bias = static_cast<const float*>(bias->data());
  forward.encoding = static_cast<float*>(encoding->data());
  forward.argmax = static_cast<std::int64_t*>(argmax->data());
  expect_ok(on.token_max_projection_forward(forward));

  ProjectionResults out;
  out.encoding = from_bytes(encoding->read(), DataType::kFloat32);
  std::vector<float> weights(entries);
  for (std::size_t i = 0; i < entries; ++i) weights[i] = static_cast<float>(slope(out.encoding[i])) * in.gradient[i];
  auto weight = floats(weights);
  auto grad_tokens = typed(std::vector<float>(in.tokens.size(), NAN)),
       grad_table = typed(std::vector<float>(in.table.size(), NAN));
  TokenMaxProjectionBackward backward;
  backward.problem = problem;
  backward.tokens = tokens->data();
  backward.table = table->data();
  backward.argmax = forward.argmax;
  backward.weight = static_cast<const float*>(weight->data());
  backward.grad_tokens = grad_tokens->data();
  backward.grad_table = grad_table->data();
  expect_ok(on.token_max_projection_backward(backward));
  out.grad_tokens = from_bytes(grad_tokens->read(), problem.type);
  out.grad_table = from_bytes(grad_table->read(), problem.type);
  const std::vector<unsigned char> places = argmax->read();
  out.argmax.resize(entries);
  std::memcpy(out.argmax.data(), places.data(), places.size());
  return out;
}

/// Whether the backend is a GPU of compute capability 9.0, or its emulation.
bool runs_hopper_kernels(const Backend& on) {
#if defined(TESSERA_TEST_CUDA)
  if (on.name == "cuda") return cuda::runs_hopper_kernels();
#endif
  return on.name == "emulation";
}

class TokenMaxProjectionKernel : public KernelTest {
 protected:
  /// Calls visit(type, configuration) for each type of the backend and each configuration that takes it.
  template <class Visit>
  void for_each_configuration(const Visit& visit) const {
    for (const DataType type : types()) {
      if (on_cpu) visit(type, nullptr);
      for (const TokenMaxProjectionConfiguration& each : kTokenMaxProjectionConfigurations) {
        if (on_cpu || (each.positions > 0 && (type != DataType::kBfloat16 || !runs_hopper_kernels(on)))) continue;
        SCOPED_TRACE(each.name);
        visit(type, each.name);
      }
    }
  }

  /// Compares the kernel with the definition in float64. Checks that the positions that the kernel chose are maxima, and expects the
  /// gradients at these positions.
  void expect_as_defined(const ProjectionInputs& in) {
    const auto& [batch, positions, vocabulary, width, type, configuration] = in.problem;
    const ProjectionResults ours = run_projection(on, in);
    std::vector<double> encoding(batch * vocabulary), grad_tokens(in.tokens.size()), grad_table(in.table.size());
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t v = 0; v < vocabulary; ++v) {
        const auto product = [&](std::int64_t n) {
          double sum = in.bias[v];
          for (std::int64_t d = 0; d < width; ++d)
            sum += static_cast<double>(in.tokens[(b * positions + n) * width + d]) * in.table[v * width + d];
          return sum;
        };
        const std::int64_t place = b * vocabulary + v, chosen = ours.argmax[place];
        std::int64_t best = -1;
        for (std::int64_t n = 0; n < positions; ++n)
          if (in.real(b, n) && (best < 0 || product(n) > product(best))) best = n;
        if (best < 0) {
          ASSERT_EQ(chosen, -1);
          continue;
        }
        ASSERT_TRUE(chosen >= 0 && chosen < positions && in.real(b, chosen)) << "sample " << b << ", entry " << v;
        ASSERT_NEAR(product(chosen), product(best), 1e-4) << "sample " << b << ", entry " << v;
        encoding[place] = std::log1p(std::max(0.0, product(best)));
        const double weight = slope(ours.encoding[place]) * in.gradient[place];
        for (std::int64_t d = 0; d < width; ++d) {
          grad_tokens[(b * positions + chosen) * width + d] += weight * in.table[v * width + d];
          grad_table[v * width + d] += weight * in.tokens[(b * positions + chosen) * width + d];
        }
      }
    }
    const double rounding = type == DataType::kFloat32 ? 1e-5 : 4e-3;
    expect_close("encoding", ours.encoding, encoding, 1e-5);
    expect_close("grad_tokens", ours.grad_tokens, grad_tokens, rounding);
    expect_close("grad_table", ours.grad_table, grad_table, rounding);
  }
};

TEST_P(TokenMaxProjectionKernel, MatchesTheDefinition) {
  for (const DataType type : types()) {
    for (const ProjectionShape& shape :
         {ProjectionShape{1, 1, 1, 1, false}, ProjectionShape{1, 1, 2, 8}, ProjectionShape{2, 5, 70, 16},
          ProjectionShape{2, 63, 40, 40, false}, ProjectionShape{2, 100, 130, 24}, ProjectionShape{2, 196, 65, 33},
          ProjectionShape{1, 300, 67, 16, false}, ProjectionShape{40, 3, 33, 8}, ProjectionShape{3, 20, 600, 8},
          ProjectionShape{2, 9, 17, 300}, ProjectionShape{2, 9, 17, 1040}}) {
      SCOPED_TRACE(testing::Message() << "B=" << shape.batch << " N=" << shape.positions << " V=" << shape.vocabulary
                                      << " w=" << shape.width);
      expect_as_defined(random_projection(shape, type));
    }
  }
}

TEST_P(TokenMaxProjectionKernel, EveryConfigurationMatchesTheDefinition) {
  for_each_configuration([&](DataType type, const char* configuration) {
    for (const ProjectionShape& shape :
         {ProjectionShape{1, 1, 1, 8, false}, ProjectionShape{2, 196, 300, 64}, ProjectionShape{3, 81, 257, 72},
          ProjectionShape{1, 410, 40, 16, false}, ProjectionShape{66, 3, 40, 8}}) {
      SCOPED_TRACE(testing::Message() << "B=" << shape.batch << " N=" << shape.positions << " V=" << shape.vocabulary
                                      << " w=" << shape.width);
      ProjectionInputs in = random_projection(shape, type);
      in.problem.configuration = configuration;
      expect_as_defined(in);
    }
  });
}

TEST_P(TokenMaxProjectionKernel, MatchesTheDefinitionAtUsualSizes) {
  if (on_cpu) GTEST_SKIP() << "the kernels for GPUs choose by these sizes";
  for (const std::int64_t positions : {77, 196, 256}) {
    SCOPED_TRACE(positions);
    expect_as_defined(random_projection({2, positions, 600, 512, positions == 77}, DataType::kBfloat16));
  }
}

TEST_P(TokenMaxProjectionKernel, ManyMaximaAtOnePositionHaveTheirGradients) {
  for (const DataType type : types()) {
    for (const std::int64_t vocabulary : {5, 33, 1500}) {
      ProjectionInputs in = random_projection({2, 40, vocabulary, 24, false}, type);
      for (std::int64_t d = 0; d < 24; ++d) in.tokens[20 * 24 + d] *= 8.0f;
      std::fill(in.bias.begin(), in.bias.end(), 9.0f);
      expect_as_defined(in);
    }
  }
}

TEST_P(TokenMaxProjectionKernel, MorePositionsThanABlockCanSort) {
  for (const DataType type : types()) expect_as_defined(random_projection({1, 3700, 9, 8}, type));
}

TEST_P(TokenMaxProjectionKernel, LowestRealPositionWinsATie) {
  for_each_configuration([&](DataType type, const char* configuration) {
    for (const std::int64_t positions : {5, 90, 270}) {
      ProjectionInputs in = random_projection({2, positions, 150, 8, false}, type);
      in.problem.configuration = configuration;
      std::fill(in.table.begin(), in.table.end(), 0.0f);
      std::fill(in.bias.begin(), in.bias.end(), -1.0f);
      in.mask.assign(2 * positions, 1);
      // Masks all positions of the second sample except the last two.
      std::fill(in.mask.begin() + positions, in.mask.begin() + 2 * positions - 2, 0);
      const ProjectionResults out = run_projection(on, in);
      for (std::int64_t v = 0; v < 150; ++v) {
        EXPECT_EQ(out.argmax[v], 0);
        EXPECT_EQ(out.argmax[150 + v], positions - 2);
        EXPECT_EQ(out.encoding[v], 0.0f);
      }
    }
  });
}

TEST_P(TokenMaxProjectionKernel, PaddingIsNeverRead) {
  for_each_configuration([&](DataType type, const char* configuration) {
    ProjectionInputs in = random_projection({3, 37, 150, 24}, type);
    in.problem.configuration = configuration;
    ProjectionInputs spoiled = in;
    for (std::size_t i = 0; i < in.tokens.size(); ++i)
      if (in.mask[i / 24] == 0) spoiled.tokens[i] = i % 2 == 0 ? NAN : INFINITY;
    expect_equal(run_projection(on, spoiled), run_projection(on, in));
  });
}

TEST_P(TokenMaxProjectionKernel, NanAtARealPositionIsNotHidden) {
  for_each_configuration([&](DataType type, const char* configuration) {
    for (const std::int64_t position : {0, 20, 69, 201}) {
      ProjectionInputs in = random_projection({2, 210, 150, 8, false}, type);
      in.problem.configuration = configuration;
      for (const std::int64_t spoiled : {position, std::int64_t{205}}) std::fill_n(in.tokens.begin() + (210 + spoiled) * 8, 8, NAN);
      const ProjectionResults out = run_projection(on, in);
      for (std::int64_t v = 0; v < 150; ++v) {
        EXPECT_FALSE(std::isnan(out.encoding[v]));
        EXPECT_TRUE(std::isnan(out.encoding[150 + v]));
        EXPECT_EQ(out.argmax[150 + v], position);
      }
    }
  });
}

TEST_P(TokenMaxProjectionKernel, InfiniteProductsHaveAPosition) {
  for_each_configuration([&](DataType type, const char* configuration) {
    ProjectionInputs in = random_projection({1, 90, 40, 8, false}, type);
    in.problem.configuration = configuration;
    std::fill(in.tokens.begin(), in.tokens.end(), -INFINITY);
    std::fill(in.table.begin(), in.table.end(), 1.0f);
    in.mask.assign(90, 1);
    std::fill_n(in.mask.begin(), 7, 0);
    const ProjectionResults out = run_projection(on, in);
    EXPECT_EQ(out.argmax, std::vector<std::int64_t>(40, 7));
    EXPECT_EQ(out.encoding, std::vector<float>(40, 0.0f));
  });
}

TEST_P(TokenMaxProjectionKernel, IsDeterministic) {
  for_each_configuration([&](DataType type, const char* configuration) {
    ProjectionInputs in = random_projection({5, 50, 400, 40}, type);
    in.problem.configuration = configuration;
    const ProjectionResults once = run_projection(on, in);
    expect_equal(run_projection(on, in), once);
    if (on.name == "emulation") expect_equal(in_reverse_order([&] { return run_projection(on, in); }), once);
  });
}

TEST_P(TokenMaxProjectionKernel, RefusesAConfigurationThatCannotProcessTheProblem) {
  if (on_cpu) GTEST_SKIP() << "configurations are for GPUs";
  const auto message = [&](const char* configuration, std::int64_t width, DataType type) {
    alignas(16) static float memory[8];
    static std::int64_t argmax;
    TokenMaxProjectionForward call;
    call.problem = {1, 1, 1, width, type, configuration};
    call.tokens = call.table = memory;
    call.bias = call.encoding = memory;
    call.argmax = &argmax;
    return on.token_max_projection_forward(call).message();
  };
  EXPECT_EQ(message("hopper/80", 8, DataType::kFloat32),
            "token_max_projection: the configuration hopper/80 cannot process these arguments on this GPU");
  EXPECT_EQ(message("hopper/200", 4, DataType::kBfloat16),
            "token_max_projection: the configuration hopper/200 cannot process these arguments on this GPU");
  EXPECT_EQ(message("hopper/64", 8, DataType::kBfloat16),
            "token_max_projection: the configuration hopper/64 cannot process these arguments on this GPU");
}

INSTANTIATE_TEST_SUITE_P(Backends, TokenMaxProjectionKernel, testing::ValuesIn(backend_names()), test_name<std::string>);

TEST(TokenMaxProjectionKernelCpu, ThreadsChangeNothing) {
  const ProjectionInputs in = random_projection({7, 100, 700, 20}, DataType::kFloat32);
  const ProjectionResults one = run_projection(cpu_backend(1), in);
  for (const int threads : {2, 5}) expect_equal(run_projection(cpu_backend(threads), in), one);
}

TEST(TokenMaxProjectionPlan, ChoosesTheTileThatMultipliesTheFewestPositions) {
  alignas(16) static float memory[4];
  const auto chosen = [&](std::int64_t positions, int compute_capability = 90, std::int64_t width = 512) {
    TokenMaxProjectionForward call;
    call.problem = {64, positions, 30522, width, DataType::kBfloat16};
    call.tokens = call.table = memory;
    return std::string(choose_configuration(call, {compute_capability, 227 * 1024})->name);
  };
  EXPECT_EQ(chosen(77), "hopper/80");
  EXPECT_EQ(chosen(196), "hopper/200");
  EXPECT_EQ(chosen(256), "hopper/128");
  EXPECT_EQ(chosen(576), "hopper/200");
  EXPECT_EQ(chosen(196, 80), "mma");
  EXPECT_EQ(chosen(196, 100), "mma");
  EXPECT_EQ(chosen(196, 90, 500), "mma");
}

TEST(TokenMaxProjectionKernelCpu, ErrorsNameBadArguments) {
  TokenMaxProjectionForward call;
  call.problem = {2, 0, 3, 4};
  EXPECT_EQ(check(call).message(), "token_max_projection: positions must be at least 1, but is 0");
  call.problem.positions = 5;
  EXPECT_EQ(check(call).message(), "token_max_projection: tokens is a null pointer");
  TokenMaxProjectionBackward backward;
  backward.problem = {0, 5, 3, 4, DataType::kBfloat16};
  EXPECT_EQ(cpu::token_max_projection_backward(backward).message(),
            "token_max_projection: the CPU has only a float32 kernel");
}

}  // namespace
}  // namespace tessera::kernels::test
