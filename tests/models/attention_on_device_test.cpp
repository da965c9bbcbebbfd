// Compares attend() on the CPU and on a GPU with plain attention in float64. LibTorch chooses a kernel by type, mask and length, so the
// tests vary all three. Prints a table of the worst errors as shares of the tolerance.
#include <cmath>
#include <iomanip>
#include <iostream>
#include <limits>

#include <ATen/Context.h>
#include <torch/csrc/autograd/autograd.h>

#include "src/models/attention.h"
#include "src/models/packed_rows.h"
#include "src/models/self_attention.h"
#include "tests/models/small_models.h"

namespace tessera {
namespace {

constexpr std::int64_t kBatch = 6, kHeads = 8, kWidth = 512;

// A kind of attention mask. If `packed` is true, the tensors contain no padding.
struct Sight {
  const char* name;
  bool causal, padded, packed;
};
constexpr Sight kSights[] = {{"all", false, false, false},  {"causal", true, false, false},
                             {"mask", false, true, false},  {"mask, causal", true, true, false},
                             {"packed", false, true, true}, {"packed, causal", true, true, true}};

// Returns the lengths of six rows, among them a full row, a row with a single token and an empty row.
std::vector<std::int64_t> lengths_up_to(std::int64_t most) {
  return {most, most / 2, 1, 0, most - 1, 17};
}

// The attention's output, with zeros in the padding, and the gradients of queries, keys and values.
using Attended = std::vector<at::Tensor>;

Attended attended(const at::Tensor& out, const std::vector<at::Tensor>& qkv, const at::Tensor& mask,
                  const at::Tensor& cotangent, bool again = false) {
  const at::Tensor real = zero_padding(out, mask);
  Attended all{real.detach()};
  for (const at::Tensor& gradient : torch::autograd::grad({real}, qkv, {cotangent}, again)) all.push_back(gradient);
  return all;
}

// Computes softmax(Q K^T / sqrt(width of a head)) V with the scores of masked pairs set to minus infinity.
Attended by_definition(const std::vector<at::Tensor>& qkv, const at::Tensor& mask, const at::Tensor& cotangent,
                       bool causal) {
  const auto heads = [](const at::Tensor& x) { return x.unflatten(2, {kHeads, x.size(2) / kHeads}).transpose(1, 2); };
  const std::int64_t length = qkv[0].size(1);
  at::Tensor seen = at::ones({length, length}, at::kBool);
  if (causal) seen = seen.tril();
  if (mask.defined())  // rows without real tokens attend to everything, so that their softmax is defined
    seen = (seen & mask.unsqueeze(1).unsqueeze(1)) | mask.any(1).logical_not().view({-1, 1, 1, 1});
  const at::Tensor scores = heads(qkv[0]).matmul(heads(qkv[1]).mT()) / std::sqrt(qkv[0].size(2) / kHeads);
  const at::Tensor weights =
      scores.masked_fill(seen.logical_not(), -std::numeric_limits<double>::infinity()).softmax(-1);
  return attended(weights.matmul(heads(qkv[2])).transpose(1, 2).flatten(2), qkv, mask, cotangent);
}

Attended by_attend(const std::vector<at::Tensor>& qkv, const at::Tensor& mask, const at::Tensor& cotangent,
                   const Sight& sight, const std::vector<std::int64_t>& lengths) {
  const std::int64_t length = qkv[0].size(1);
  if (!sight.packed) {
    const AttentionMask seen = sight.causal ? causal_attention_mask(mask, length) : self_attention_mask(mask, length);
    return attended(attend(qkv[0], qkv[1], qkv[2], kHeads, seen), qkv, mask, cotangent);
  }
  AttentionMask seen;
  seen.causal = sight.causal;
  seen.packed = packed_rows(mask, at::tensor(lengths));
  const auto rows = [&](std::size_t i) { return pack(qkv[i], seen.packed); };
  return attended(unpack(attend(rows(0), rows(1), rows(2), kHeads, seen), seen.packed), qkv, mask, cotangent);
}

// The same by self_attention() with each configuration that can compute it.
std::map<std::string, Attended> by_configurations(const std::vector<at::Tensor>& qkv, const at::Tensor& mask, const at::Tensor& cotangent,
                                                  const Sight& sight, const std::vector<std::int64_t>& lengths) {
  AttentionMask seen = sight.packed ? AttentionMask{} : causal_attention_mask({}, qkv[0].size(1));
  seen.causal = sight.causal;
  if (sight.packed) seen.packed = packed_rows(mask, at::tensor(lengths));
  const at::Tensor joined = at::cat(qkv, -1), rows = sight.packed ? pack(joined, seen.packed) : joined;
  const SelfAttentionProblem problem = attention_problem(rows, kHeads, seen).value();
  std::map<std::string, Attended> all;
  for (const std::string& configuration : attention_configurations(problem)) {
    const ForcedConfiguration forced(attention_tuning_key(problem), configuration);
    const at::Tensor out = self_attention(rows, kHeads, seen);
    all[configuration] = attended(sight.packed ? unpack(out, seen.packed) : out, qkv, mask, cotangent, /*again=*/true);
  }
  return all;
}

// Returns max |ours - theirs| as a share of tolerance * (1 + max |theirs|), or infinity if a value in `ours` is not finite.
double share_of_allowed(const at::Tensor& ours, const at::Tensor& theirs, double tolerance) {
  const at::Tensor off = (ours.to(at::kCPU, at::kDouble) - theirs).abs();
  if (!off.isfinite().all().item<bool>()) return std::numeric_limits<double>::infinity();
  return off.max().item<double>() / (tolerance * (1 + theirs.abs().max().item<double>()));
}

class AttentionOnDevice : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "cuda" && !at::hasCUDA()) GTEST_SKIP() << "no GPU";
  }

  static void compare(std::int64_t length, at::ScalarType dtype, double tolerance, std::int64_t width = kWidth,
                      bool configurations = false) {
    const at::Device device(GetParam());
    at::manual_seed(static_cast<std::uint64_t>(length));
    std::vector<at::Tensor> wide, ours;
    for (int i = 0; i < 4; ++i) {  // queries, keys, values and cotangent, rounded to the type
      wide.push_back(at::randn({kBatch, length, width}).to(dtype).to(at::kDouble));
      ours.push_back(wide.back().to(device, dtype));
    }
    const at::Tensor wide_cotangent = wide[3], cotangent = ours[3];
    wide.resize(3), ours.resize(3);
    for (int i = 0; i < 3; ++i) wide[i].requires_grad_(true), ours[i].requires_grad_(true);
    const std::vector<std::int64_t> lengths = lengths_up_to(length);
    for (const Sight& sight : kSights) {
      const at::Tensor mask = sight.padded ? length_mask(lengths, length) : at::Tensor();
      const at::Tensor there = mask.defined() ? mask.to(device) : mask;
      const Attended theirs = by_definition(wide, mask, wide_cotangent, sight.causal);
      std::map<std::string, Attended> all;
      if (configurations) {
        if (sight.packed == sight.padded) all = by_configurations(ours, there, cotangent, sight, lengths);
      } else {
        all[""] = by_attend(ours, there, cotangent, sight, lengths);
      }
      for (const auto& [name, got] : all) {
        std::cout << "| " << GetParam() << " | " << dtype << " | " << length << " | " << sight.name << (name.empty() ? "" : ", ") << name;
        for (std::size_t i = 0; i < theirs.size(); ++i) {
          const double share = share_of_allowed(got[i], theirs[i], tolerance);
          std::cout << " | " << std::setprecision(2) << share;
          EXPECT_LE(share, 1) << "tensor " << i << ", " << sight.name << ", length " << length << ", " << dtype << " " << name;
        }
        std::cout << " |\n";
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(On, AttentionOnDevice, testing::Values("cpu", "cuda"),
                         [](const auto& each) { return each.param; });

TEST_P(AttentionOnDevice, EqualsItsDefinitionInFloat64) {
  std::cout << "| device | type | length | sees | output | grad q | grad k | grad v |\n"
               "| --- | --- | ---: | --- | ---: | ---: | ---: | ---: |\n";
  for (const std::int64_t length : {55, 64, 77, 192})
    for (const auto& [dtype, tolerance] :
         std::initializer_list<std::pair<at::ScalarType, double>>{{at::kFloat, 1e-4}, {at::kBFloat16, 1e-2}})
      compare(length, dtype, tolerance);
}

TEST_P(AttentionOnDevice, EqualsItsDefinitionWithEveryConfiguration) {
  for (const std::int64_t length : {50, 77, 197}) compare(length, at::kBFloat16, 1e-2, kWidth, /*configurations=*/true);
}

TEST_P(AttentionOnDevice, TakesHeadsOfAnyWidth) {
  for (const std::int64_t width : {12, 272}) {
    compare(77, at::kFloat, 1e-4, kHeads * width);
    compare(77, at::kBFloat16, 1e-2, kHeads * width);
  }
}

}  // namespace
}  // namespace tessera
