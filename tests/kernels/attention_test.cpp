#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "kernels/attention/attention.h"
#include "tests/kernels/backend.h"
#include "tests/kernels/sparsify_group_case.h"

namespace tessera::kernels::test {
namespace {

constexpr DataType kFloat = DataType::kFloat32, kNarrow = DataType::kBfloat16;

struct Case {
  std::vector<std::int64_t> lengths;  // of the sequences
  bool causal = false, offsets = true;
  std::int64_t heads = 2;
  const char *forward = nullptr, *backward = nullptr;  // configurations
  std::int64_t ruined = -1;                            // a sequence whose inputs are NaN
  std::int64_t width = 64;                             // of a head

  std::int64_t rows() const { return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}); }
  std::int64_t longest() const { return *std::max_element(lengths.begin(), lengths.end()); }
  std::int64_t first(std::size_t sequence) const {
    return std::accumulate(lengths.begin(), lengths.begin() + static_cast<std::ptrdiff_t>(sequence), std::int64_t{0});
  }
};

struct Results {
  std::vector<float> output, statistics, grad_qkv;
};
struct Exact {
  std::vector<double> output, statistics, grad_qkv;
};

class Attention : public KernelTest {
 protected:
  // All arrays continue with rows of NaN that no kernel may read or write.
  static constexpr std::int64_t kMoreRows = 70;

  static std::vector<float> values(const Case& c, std::int64_t columns, unsigned seed) {
    std::vector<float> out = rounded(normal_values(c.rows() * columns, seed), kNarrow);
    if (c.ruined >= 0) {
      const std::int64_t first = c.first(static_cast<std::size_t>(c.ruined)) * columns;
      std::fill_n(out.begin() + first, c.lengths[static_cast<std::size_t>(c.ruined)] * columns, NAN);
    }
    out.resize(static_cast<std::size_t>((c.rows() + kMoreRows) * columns), NAN);
    return out;
  }
  static std::vector<float> qkv_of(const Case& c) { return values(c, 3 * c.heads * c.width, 1); }
  static std::vector<float> gradient_of(const Case& c) { return values(c, c.heads * c.width, 2); }
  static float scale() { return 0.125f; }

  static AttentionProblem problem_of(const Case& c) {
    AttentionProblem p;
    p.sequences = std::ssize(c.lengths);
    p.rows = c.rows();
    p.longest = c.longest();
    p.heads = c.heads;
    p.head_width = c.width;
    p.causal = c.causal;
    p.scale = scale();
    return p;
  }

  Results run(const Case& c) const {
    const auto given = [&](const std::vector<float>& values, DataType type) { return on.allocate(to_bytes(values, type)); };
    const auto empty = [&](std::int64_t count, DataType type) {
      return given(std::vector<float>(static_cast<std::size_t>(count), NAN), type);
    };
    std::vector<std::int32_t> starts;
    for (std::size_t i = 0; i <= c.lengths.size(); ++i) starts.push_back(static_cast<std::int32_t>(c.first(i)));
    const unsigned char* const bytes = reinterpret_cast<const unsigned char*>(starts.data());
    const auto offsets = on.allocate({bytes, bytes + 4 * starts.size()});
    const std::int64_t all = c.rows() + kMoreRows, width = c.heads * c.width;
    const auto qkv = given(qkv_of(c), kNarrow), grad_output = given(gradient_of(c), kNarrow);
    const auto output = empty(all * width, kNarrow), grad_qkv = empty(3 * all * width, kNarrow),
               statistics = empty(c.heads * c.rows(), kFloat);
    AttentionProblem p = problem_of(c);
    if (c.offsets) p.offsets = static_cast<const std::int32_t*>(offsets->data());
    p.configuration = c.forward;
    expect_ok(on.attention_forward({p, qkv->data(), output->data(), static_cast<float*>(statistics->data())}));
    p.configuration = c.backward;
    expect_ok(on.attention_backward(
        {p, qkv->data(), output->data(), static_cast<const float*>(statistics->data()), grad_output->data(), grad_qkv->data()}));
    return {from_bytes(output->read(), kNarrow), from_bytes(statistics->read(), kFloat), from_bytes(grad_qkv->read(), kNarrow)};
  }

  static Exact by_definition(const Case& c) {
    const std::vector<float> qkv = qkv_of(c), gradient = gradient_of(c);
    const auto rows = static_cast<std::size_t>(c.rows()), heads = static_cast<std::size_t>(c.heads), d = static_cast<std::size_t>(c.width);
    Exact out{std::vector<double>(rows * heads * d), std::vector<double>(heads * rows), std::vector<double>(3 * rows * heads * d)};
    for (std::size_t sequence = 0; sequence < c.lengths.size(); ++sequence) {
      const auto first = static_cast<std::size_t>(c.first(sequence)), length = static_cast<std::size_t>(c.lengths[sequence]);
      for (std::size_t h = 0; h < heads; ++h) {
        const auto at = [&](std::size_t row, std::size_t part, std::size_t k) { return (((first + row) * 3 + part) * heads + h) * d + k; };
        const auto of_output = [&](std::size_t row, std::size_t k) { return ((first + row) * heads + h) * d + k; };
        for (std::size_t i = 0; i < length; ++i) {
          const std::size_t seen = c.causal ? i + 1 : length;
          std::vector<double> weights(seen), of_weights(seen);
          double highest = -INFINITY, sum = 0.0, product = 0.0;
          for (std::size_t j = 0; j < seen; ++j) {
            for (std::size_t k = 0; k < d; ++k) weights[j] += double{qkv[at(i, 0, k)]} * double{qkv[at(j, 1, k)]} * double{scale()};
            highest = std::max(highest, weights[j]);
          }
          for (double& weight : weights) sum += weight = std::exp(weight - highest);
          out.statistics[h * rows + first + i] = (highest + std::log(sum)) / std::log(2.0);
          for (std::size_t j = 0; j < seen; ++j) {
            weights[j] /= sum;
            for (std::size_t k = 0; k < d; ++k) {
              out.output[of_output(i, k)] += weights[j] * double{qkv[at(j, 2, k)]};
              of_weights[j] += double{gradient[of_output(i, k)]} * double{qkv[at(j, 2, k)]};
            }
            product += weights[j] * of_weights[j];
          }
          for (std::size_t j = 0; j < seen; ++j) {
            const double of_score = weights[j] * (of_weights[j] - product) * double{scale()};
            for (std::size_t k = 0; k < d; ++k) {
              out.grad_qkv[at(i, 0, k)] += of_score * double{qkv[at(j, 1, k)]};
              out.grad_qkv[at(j, 1, k)] += of_score * double{qkv[at(i, 0, k)]};
              out.grad_qkv[at(j, 2, k)] += weights[j] * double{gradient[of_output(i, k)]};
            }
          }
        }
      }
    }
    return out;
  }

  /// Compares the rows of all sequences but the ruined one, and expects that nothing else was written.
  static void expect_rows(const char* what, const Case& c, std::vector<float> ours, std::vector<double> theirs, std::int64_t columns) {
    const auto end = ours.begin() + c.rows() * columns;
    EXPECT_TRUE(std::all_of(end, ours.end(), [](float value) { return std::isnan(value); })) << what << " after the last sequence";
    ours.erase(end, ours.end());
    if (c.ruined >= 0) {
      const std::int64_t first = c.first(static_cast<std::size_t>(c.ruined)) * columns;
      const std::int64_t count = c.lengths[static_cast<std::size_t>(c.ruined)] * columns;
      ours.erase(ours.begin() + first, ours.begin() + first + count);
      theirs.erase(theirs.begin() + first, theirs.begin() + first + count);
    }
    expect_close(what, ours, theirs, 4e-3);
  }
  void expect_as_defined(const Case& c) const {
    SCOPED_TRACE(testing::Message() << testing::PrintToString(c.lengths) << ", causal " << c.causal << ", configurations "
                                    << (c.forward ? c.forward : "-") << " " << (c.backward ? c.backward : "-") << ", width " << c.width);
    const Results ours = run(c);
    const Exact theirs = by_definition(c);
    expect_rows("output", c, ours.output, theirs.output, c.heads * c.width);
    expect_rows("gradient", c, ours.grad_qkv, theirs.grad_qkv, 3 * c.heads * c.width);
    if (c.ruined < 0) expect_close("statistics", ours.statistics, theirs.statistics, 1e-5);
  }
};

// Other GPUs than those of compute capability 9.0 do not have the kernels.
std::vector<std::string> attention_backend_names() {
  std::vector<std::string> names = device_backend_names();
  if (!cuda::has_attention()) std::erase(names, "cuda");
  return names;
}
INSTANTIATE_TEST_SUITE_P(On, Attention, testing::ValuesIn(attention_backend_names()), test_name<std::string>);

TEST_P(Attention, MatchesTheDefinitionAtTheLengthsOfModels) {
  for (const std::int64_t length : {50, 77, 196, 197, 256})
    for (const bool causal : {false, true}) expect_as_defined({{length, length}, causal, /*offsets=*/false, length > 128 ? 1 : 2});
  expect_as_defined({.lengths = {256, 256}, .offsets = false, .heads = 2, .width = 80});
}

TEST_P(Attention, MatchesTheDefinitionInPackedRows) {
  for (const bool causal : {false, true}) {
    expect_as_defined({{13, 0, 77, 1, 64, 5}, causal});
    expect_as_defined({{16, 129, 65}, causal, true, 1});
    expect_as_defined({.lengths = {13, 0, 77, 129, 5}, .causal = causal, .width = 80});
  }
}

TEST_P(Attention, HasConfigurationsOfAllSizes) {
  for (const std::int64_t width : {64, 80}) {
    const Case c{.lengths = {37, 9}, .heads = 1, .width = width};
    const std::vector<std::string> all[] = {attention_configurations(problem_of(c), Pass::kForward),
                                            attention_configurations(problem_of(c), Pass::kBackward)};
    ASSERT_EQ(all[0].size(), all[1].size());
    for (std::size_t i = 0; i < all[0].size(); ++i) {
      Case each = c;
      each.forward = all[0][i].c_str();
      each.backward = all[1][i].c_str();
      expect_as_defined(each);
    }
  }
}

TEST_P(Attention, KeepsSequencesApart) {
  for (const std::int64_t ruined : {0, 1, 2}) {
    Case c{{21, 70, 40}, false, true, 1};
    c.ruined = ruined;
    expect_as_defined(c);
    c.lengths = {190, 10, 135};
    expect_as_defined(c);
    c.width = 80;
    expect_as_defined(c);
  }
}

TEST_P(Attention, IsTheSameInEveryRun) {
  const Case c{{197, 40}, false, true, 1};
  const Results once = run(c), again = in_reverse_order([&] { return run(c); });
  const auto bytes = [](const std::vector<float>& values) { return to_bytes(values, kFloat); };
  EXPECT_EQ(bytes(once.output), bytes(again.output));
  EXPECT_EQ(bytes(once.grad_qkv), bytes(again.grad_qkv));
}

TEST_P(Attention, SurvivesLargeScores) {
  // The largest score of a row is far above the others, and all of them are far from 0.
  Case c{{40}, false, true, 1};
  std::vector<float> qkv = qkv_of(c);
  for (float& value : qkv) value *= 30.0f;
  const auto buffer = on.allocate(to_bytes(rounded(qkv, kNarrow), kNarrow));
  const auto output = on.allocate(to_bytes(std::vector<float>(40 * 64), kNarrow)),
             statistics = on.allocate(to_bytes(std::vector<float>(40), kFloat)),
             gradient = on.allocate(to_bytes(std::vector<float>(40 * 64, 1.0f), kNarrow)),
             grad_qkv = on.allocate(to_bytes(std::vector<float>(3 * 40 * 64, NAN), kNarrow));
  AttentionProblem p = problem_of(c);
  expect_ok(on.attention_forward({p, buffer->data(), output->data(), static_cast<float*>(statistics->data())}));
  expect_ok(on.attention_backward(
      {p, buffer->data(), output->data(), static_cast<const float*>(statistics->data()), gradient->data(), grad_qkv->data()}));
  for (const float value : from_bytes(output->read(), kNarrow)) EXPECT_TRUE(std::isfinite(value));
  for (const float value : from_bytes(grad_qkv->read(), kNarrow)) EXPECT_TRUE(std::isfinite(value));
}

TEST_P(Attention, ErrorsNameBadArguments) {
  alignas(16) float value[4] = {};
  const auto forward = [&](const std::function<void(AttentionForward&)>& change) {
    AttentionForward call;
    call.problem = problem_of({{3, 3}});
    call.qkv = call.output = call.statistics = value;
    change(call);
    return on.attention_forward(call).message();
  };
  EXPECT_EQ(forward([](auto& c) { c.problem.longest = 257; }), "attention: longest must be at most 256, but is 257");
  EXPECT_EQ(forward([](auto& c) { c.problem.head_width = 96; }), "attention: head_width must be 64 or 80, but is 96");
  EXPECT_EQ(forward([](auto& c) { c.problem.type = kFloat; }), "attention: type must be bfloat16");
  EXPECT_EQ(forward([](auto& c) { c.problem.rows = 7; }), "attention: rows must be sequences * longest without offsets");
  EXPECT_EQ(forward([](auto& c) { c.problem.configuration = "2"; }), "attention: configuration does not exist or is too small");
  EXPECT_EQ(forward([](auto& c) { c.qkv = nullptr; }), "attention: qkv is a null pointer");
  EXPECT_EQ(forward([&](auto& c) { c.output = value + 1; }), "attention: output must begin at a multiple of 16 bytes");
  EXPECT_EQ(forward([](auto& c) { c.statistics = nullptr; }), "attention: statistics is a null pointer");
  AttentionBackward backward{problem_of({{3, 3}}), value, value, value, value, nullptr};
  EXPECT_EQ(on.attention_backward(backward).message(), "attention: grad_qkv is a null pointer");
  AttentionForward nothing{problem_of({{3, 3}})};
  nothing.problem.sequences = nothing.problem.rows = 0;
  expect_ok(on.attention_forward(nothing));
}

}  // namespace
}  // namespace tessera::kernels::test
