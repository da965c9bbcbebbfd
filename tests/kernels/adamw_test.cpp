#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "tests/kernels/backend.h"
#include "tests/kernels/sparsify_group_case.h"

namespace tessera::kernels::test {
namespace {

/// How one update is called.
struct Call {
  double learning_rate = 1e-3, weight_decay = 0.2, count = 1, learning_rate_scale = 1, weight_decay_scale = 1;
  double beta1 = 0.9, beta2 = 0.98, epsilon = 1e-6;
  float factor = NAN;  // NAN: none
  float found_inf = 0;
  unsigned seed = 1;  // of the gradients
};

/// The values of one tensor.
struct Values {
  std::vector<float> parameter, exp_avg, exp_avg_sq, copy;
};

/// Bytes that a plain struct or array has.
template <class T>
std::vector<unsigned char> raw_bytes(const T* data, std::size_t count) {
  std::vector<unsigned char> out(count * sizeof(T));
  std::memcpy(out.data(), data, out.size());
  return out;
}

class AdamW : public KernelTest {
 protected:
  /// Tensors of a run in the backend's memory. A tensor begins `shift` elements behind an address that is a multiple of 16.
  struct State {
    std::vector<std::int64_t> sizes;
    std::int64_t shift;
    std::vector<std::unique_ptr<Buffer>> parameters, firsts, seconds, copies;
    std::unique_ptr<Buffer> memory;
    AdamWTable table;
  };

  State start(const std::vector<std::int64_t>& sizes, std::int64_t shift = 0, bool copies = true) const {
    State state{sizes, shift, {}, {}, {}, {}, {}, {}};
    std::vector<AdamWTensor> tensors;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const auto count = static_cast<std::size_t>(sizes[i] + shift);
      state.parameters.push_back(on.allocate(to_bytes(initial(sizes[i] + shift, i), DataType::kFloat32)));
      for (auto* moments : {&state.firsts, &state.seconds})
        moments->push_back(on.allocate(to_bytes(std::vector<float>(count, 0.0f), DataType::kFloat32)));
      state.copies.push_back(on.allocate(to_bytes(std::vector<float>(count, NAN), DataType::kBfloat16)));
      const auto at = [&](auto* type, const std::unique_ptr<Buffer>& buffer) { return static_cast<decltype(type)>(buffer->data()) + shift; };
      float* const floats = nullptr;
      std::uint16_t* const narrow = nullptr;
      tensors.push_back({at(floats, state.parameters[i]), at(floats, state.firsts[i]), at(floats, state.seconds[i]),
                         copies ? at(narrow, state.copies[i]) : nullptr, sizes[i]});
    }
    state.table = adamw_table(tensors);
    state.memory = on.allocate(state.table.bytes);
    return state;
  }

  static std::vector<float> initial(std::int64_t count, std::size_t tensor) { return normal_values(count, static_cast<unsigned>(40 + tensor)); }
  static std::vector<float> gradient(std::int64_t count, std::size_t tensor, unsigned seed) {
    return normal_values(count, static_cast<unsigned>(1000 * seed + tensor));
  }

  void update(State& state, const Call& call) const {
    std::vector<std::unique_ptr<Buffer>> gradients;
    std::vector<const float*> addresses;
    for (std::size_t i = 0; i < state.sizes.size(); ++i) {
      gradients.push_back(on.allocate(to_bytes(gradient(state.sizes[i] + state.shift, i, call.seed), DataType::kFloat32)));
      addresses.push_back(static_cast<const float*>(gradients.back()->data()) + state.shift);
    }
    const double doubles[] = {call.learning_rate, call.weight_decay, call.count};
    const float floats[] = {call.factor, call.found_inf};
    const auto numbers = on.allocate(raw_bytes(doubles, 3)), flags = on.allocate(raw_bytes(floats, 2));
    AdamWUpdate given;
    given.tensors = state.table.tensors;
    given.chunks = state.table.chunks;
    given.table = state.memory->data();
    given.gradients = addresses.data();
    given.learning_rate = static_cast<const double*>(numbers->data());
    given.weight_decay = given.learning_rate + 1;
    given.count = given.learning_rate + 2;
    given.learning_rate_scale = call.learning_rate_scale;
    given.weight_decay_scale = call.weight_decay_scale;
    given.beta1 = call.beta1;
    given.beta2 = call.beta2;
    given.epsilon = call.epsilon;
    if (!std::isnan(call.factor)) given.factor = static_cast<const float*>(flags->data());
    given.found_inf = static_cast<const float*>(flags->data()) + 1;
    expect_ok(on.adamw_update(given));
  }

  static std::vector<float> behind(const State& state, const std::unique_ptr<Buffer>& buffer, DataType type) {
    const std::vector<float> all = from_bytes(buffer->read(), type);
    return {all.begin() + static_cast<std::ptrdiff_t>(state.shift), all.end()};
  }
  static Values values(const State& state, std::size_t tensor) {
    return {behind(state, state.parameters[tensor], DataType::kFloat32), behind(state, state.firsts[tensor], DataType::kFloat32),
            behind(state, state.seconds[tensor], DataType::kFloat32), behind(state, state.copies[tensor], DataType::kBfloat16)};
  }

  /// Makes three updates, and compares them with the definition in float64.
  void expect_as_defined(const std::vector<std::int64_t>& sizes, std::int64_t shift, Call call) const {
    State state = start(sizes, shift);
    std::vector<std::vector<double>> parameters, firsts, seconds;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::vector<float> first = initial(sizes[i] + shift, i);
      parameters.emplace_back(first.begin() + static_cast<std::ptrdiff_t>(shift), first.end());
      firsts.emplace_back(parameters.back().size());
      seconds.emplace_back(parameters.back().size());
    }
    for (unsigned step = 1; step <= 3; ++step) {
      call.count = step;
      call.seed = step;
      update(state, call);
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        const std::vector<float> gradients = gradient(sizes[i] + shift, i, step);
        const double rate = call.learning_rate * call.learning_rate_scale, factor = std::isnan(call.factor) ? 1.0 : call.factor;
        for (std::size_t k = 0; k < parameters[i].size(); ++k) {
          const double g = factor * gradients[k + static_cast<std::size_t>(shift)];
          double &p = parameters[i][k], &m = firsts[i][k], &v = seconds[i][k];
          m = call.beta1 * m + (1 - call.beta1) * g;
          v = call.beta2 * v + (1 - call.beta2) * g * g;
          p -= rate * call.weight_decay * call.weight_decay_scale * p;
          p -= rate * (m / (1 - std::pow(call.beta1, step))) / (std::sqrt(v / (1 - std::pow(call.beta2, step))) + call.epsilon);
        }
      }
    }
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "tensor " << i << " of " << sizes[i] << " elements, shift " << shift);
      const Values ours = values(state, i);
      expect_close("parameter", ours.parameter, parameters[i], 3e-7);
      expect_close("exp_avg", ours.exp_avg, firsts[i], 3e-7);
      expect_close("exp_avg_sq", ours.exp_avg_sq, seconds[i], 3e-7);
      EXPECT_EQ(ours.copy, rounded(ours.parameter, DataType::kBfloat16));
    }
  }
};
INSTANTIATE_TEST_SUITE_P(On, AdamW, testing::ValuesIn(device_backend_names()), test_name<std::string>);

TEST_P(AdamW, MatchesTheDefinition) {
  const std::vector<std::int64_t> sizes = {1, 768, 3, 8192, 8195, 20000, 0, 5};
  expect_as_defined(sizes, 0, {});
  expect_as_defined(sizes, 0, {.learning_rate = 5e-4, .learning_rate_scale = 0.25, .weight_decay_scale = 0});
  expect_as_defined(sizes, 0, {.weight_decay = 0.05, .beta1 = 0.95, .beta2 = 0.999, .epsilon = 1e-8, .factor = 0.125f});
}

TEST_P(AdamW, MatchesTheDefinitionWhereArraysAreNotAligned) {
  for (const std::int64_t shift : {1, 2, 3}) expect_as_defined({9, 8192, 4001}, shift, {.factor = 0.5f});
}

TEST_P(AdamW, UpdatesMoreTensorsThanALaunchHasAddresses) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t i = 0; i < 900; ++i) sizes.push_back(1 + i % 7);
  expect_as_defined(sizes, 0, {});
}

TEST_P(AdamW, ChangesNothingAfterAnOverflow) {
  State state = start({100, 9000});
  update(state, {});
  const Values before = values(state, 1);
  update(state, {.count = 2, .factor = NAN, .found_inf = 1, .seed = 2});
  const Values after = values(state, 1);
  EXPECT_EQ(before.parameter, after.parameter);
  EXPECT_EQ(before.exp_avg, after.exp_avg);
  EXPECT_EQ(before.exp_avg_sq, after.exp_avg_sq);
  EXPECT_EQ(before.copy, after.copy);
}

TEST_P(AdamW, WritesNoCopyThatIsNotWanted) {
  State state = start({100}, 0, /*copies=*/false);
  update(state, {});
  EXPECT_TRUE(std::isnan(values(state, 0).copy[7]));
}

TEST_P(AdamW, ASmallRateAddsUp) {
  // 1 - rate * decay would round to 1 in float32.
  State state = start({64});
  const Call call{.learning_rate = 2e-8, .weight_decay = 0.5, .epsilon = 1e30};
  std::vector<double> expected;
  for (const float each : initial(64, 0)) expected.push_back(each * (1.0 - 1e-8));
  update(state, call);
  expect_close("parameter", values(state, 0).parameter, expected, 6e-8);
}

TEST_P(AdamW, TheOrderOfThreadsDoesNotMatter) {
  const auto run = [&] {
    State state = start({20000, 300});
    update(state, {.factor = 0.5f});
    return values(state, 0).parameter;
  };
  EXPECT_EQ(run(), in_reverse_order(run));
}

TEST_P(AdamW, ErrorsNameBadArguments) {
  expect_ok(on.adamw_update({}));
  const double number = 1;
  AdamWUpdate given{.tensors = 1, .chunks = 1};
  EXPECT_EQ(on.adamw_update(given).message(), "adamw: table is a null pointer");
  std::vector<unsigned char> memory(256);
  given.table = memory.data();
  const float* const none[] = {nullptr};
  given.gradients = none;
  given.learning_rate = given.weight_decay = given.count = &number;
  EXPECT_EQ(on.adamw_update(given).message(), "adamw: gradient 0 is a null pointer");
}

}  // namespace
}  // namespace tessera::kernels::test
