#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "src/distributed/gradient_reducer.h"
#include "src/distributed/optimizer_sharding.h"
#include "tests/distributed/group_case.h"
#include <tessera/distributed/collectives.h>
#include <tessera/distributed/ring.h>

namespace tessera {
namespace {

TEST_P(Ranks, CollectivesReturnTheRightValues) {
  const int size = GetParam().size;
  const auto results = run([](const ProcessGroup& group, const at::Device& device) -> Tensors {
    const at::Tensor mine = at::full({2, 3}, group.rank() + 1.0, device);
    at::Tensor sum = mine.clone(), most = mine.clone(), root = mine.clone();
    group.all_reduce(sum);
    group.all_reduce(most, Reduction::max);
    group.broadcast(root, group.size() - 1);
    const at::Tensor mask = at::full({1, 2}, group.rank() == 1, at::TensorOptions(at::kBool).device(device));
    EXPECT_EQ(group.broadcast_text(group.first() ? "text of rank 0" : "other"), "text of rank 0");
    EXPECT_EQ(group.broadcast_text(""), "");
    at::Tensor parts = at::arange(group.size(), at::TensorOptions(at::kFloat).device(device)) + 10.0 * group.rank();
    return {{"sum", sum},
            {"max", most},
            {"root", root},
            {"gathered", group.all_gather(mine)},
            {"mask", group.all_gather(mask)},
            {"scattered", group.reduce_scatter(at::arange(2.0 * group.size(), device))},
            {"exchanged", group.all_to_all(parts)}};
  });
  for (int rank = 0; rank < size; ++rank) {
    const Tensors& got = results[static_cast<std::size_t>(rank)];
    EXPECT_EQ(got.at("sum")[1][2].item<double>(), size * (size + 1) / 2.0);
    EXPECT_EQ(got.at("max")[0][0].item<double>(), size);
    EXPECT_EQ(got.at("root")[0][0].item<double>(), size);
    ASSERT_EQ(got.at("gathered").size(0), 2 * size);
    ASSERT_EQ(got.at("mask").scalar_type(), at::kBool);
    for (int other = 0; other < size; ++other) {
      EXPECT_EQ(got.at("gathered")[2 * other + 1][0].item<double>(), other + 1);
      EXPECT_EQ(got.at("mask")[other][1].item<bool>(), other == 1);
      EXPECT_EQ(got.at("exchanged")[other].item<double>(), 10 * other + rank);
    }
    EXPECT_EQ(got.at("scattered")[1].item<double>(), size * (2.0 * rank + 1));
  }
}

TEST_P(Ranks, PassOnSendsToTheNextAndReceivesFromThePrevious) {
  const int size = GetParam().size;
  const auto results = run([](const ProcessGroup& group, const at::Device& device) -> Tensors {
    const at::Tensor own = at::arange(100000.0, device) + group.rank(), received = at::zeros_like(own);
    group.pass_on(own, received).wait();
    return {{"received", received}};
  });
  for (int rank = 0; rank < size; ++rank)
    EXPECT_TRUE(at::equal(results[static_cast<std::size_t>(rank)].at("received"),
                          at::arange(100000.0) + (rank + size - 1) % size));
}

TEST_P(Ranks, RingVisitsEveryBlockAndReturnsItsSums) {
  const int size = GetParam().size;
  const auto results = run([](const ProcessGroup& group, const at::Device& device) -> Tensors {
    const at::Tensor seen = at::full({group.size()}, -1.0, device);
    const at::Tensor home = visit_ring(at::full({2, 2}, 1.0 + group.rank(), device), at::zeros({2}, device), group,
                                       [&](int owner, const at::Tensor& block, const at::Tensor& sums) {
                                         seen[owner] = block[0][1];
                                         sums.add_(100.0 * (1 + owner) + group.rank());
                                       });
    return {{"seen", seen}, {"home", home}};
  });
  for (int rank = 0; rank < size; ++rank) {
    const Tensors& got = results[static_cast<std::size_t>(rank)];
    for (int owner = 0; owner < size; ++owner) EXPECT_EQ(got.at("seen")[owner].item<double>(), owner + 1);
    EXPECT_EQ(got.at("home")[1].item<double>(), size * 100.0 * (rank + 1) + size * (size - 1) / 2.0);
  }
}

// Each rank sums the collectives' results with random weights of its own. The total is the sum over ranks, so its gradient depends on the
// random weights of all ranks.
TEST_P(Ranks, CollectivesReturnTheGradientOfTheSumOverRanks) {
  const int size = GetParam().size;
  const auto results = run([](const ProcessGroup& group, const at::Device& device) -> Tensors {
    at::manual_seed(100 + group.rank());
    const at::Tensor own = at::randn({2, 2 * group.size()}, at::kDouble).to(device).requires_grad_(true);
    const at::Tensor gathered = gather_rows(own, group), columns = rows_to_columns(own, group);
    const at::Tensor a = at::randn_like(gathered), b = at::randn_like(columns);
    const at::Tensor gradient = torch::autograd::grad({(a * gathered).sum() + (b * columns).sum()}, {own})[0];
    return {{"own", own}, {"columns", columns}, {"a", a}, {"b", b}, {"gradient", gradient}};
  });
  for (int rank = 0; rank < size; ++rank) {
    at::Tensor expected = at::zeros({2, 2 * size}, at::kDouble);
    for (int other = 0; other < size; ++other) {
      const Tensors& there = results[static_cast<std::size_t>(other)];
      const Tensors& here = results[static_cast<std::size_t>(rank)];
      expected += there.at("a").narrow(0, 2 * rank, 2);
      expected.narrow(1, 2 * other, 2) += there.at("b").narrow(0, 2 * rank, 2);
      EXPECT_TRUE(at::equal(there.at("columns").narrow(0, 2 * rank, 2), here.at("own").narrow(1, 2 * other, 2)));
    }
    EXPECT_TRUE(at::allclose(results[static_cast<std::size_t>(rank)].at("gradient"), expected));
  }
}

TEST_P(Ranks, ReducerAveragesAccumulatedGradientsAndSkipsUnusedParameters) {
  const int size = GetParam().size;
  const auto results = run([](const ProcessGroup& group, const at::Device& device) -> Tensors {
    const at::Tensor used = at::ones({3}, device).requires_grad_(true),
                     unused = at::ones({2}, device).requires_grad_(true),
                     sometimes = at::ones({2}, device).requires_grad_(true);
    // Buckets of a few bytes hold one parameter each.
    GradientReducer reducer({used, unused, sometimes}, group, 1e-5);
    const double mine = group.rank() + 1;
    Tensors out;
    for (int step = 0; step < 3; ++step) {
      used.mutable_grad().reset();
      sometimes.mutable_grad().reset();
      reducer.backward((used * mine + sometimes.sum()).sum(), BackwardPass::some);
      if (step == 0) out["inner"] = used.grad().clone();
      reducer.backward((used * mine * 10).sum(), BackwardPass::last);
      EXPECT_FALSE(unused.grad().defined());
    }
    out["used"] = used.grad();
    out["sometimes"] = sometimes.grad();
    return out;
  });
  for (int rank = 0; rank < size; ++rank) {
    const Tensors& got = results[static_cast<std::size_t>(rank)];
    EXPECT_EQ(got.at("inner")[0].item<double>(), rank + 1) << "no reduction on inner steps";
    EXPECT_NEAR(got.at("used")[0].item<double>(), 11 * (size + 1) / 2.0, 1e-5);
    EXPECT_NEAR(got.at("sometimes")[0].item<double>(), 3, 1e-5);
  }
}

// Reduces random gradients of many magnitudes in small buckets. One of the parameters has no gradient on any rank.
Tensors reduced(const ProcessGroup& group, const at::Device& device, Compression compression) {
  std::vector<at::Tensor> parameters;
  for (const std::int64_t count : {1000, 3, 40, 7})
    parameters.push_back(at::ones({count}, device).requires_grad_(true));
  GradientReducer reducer(parameters, group, 1e-4, compression);
  Tensors out;
  at::manual_seed(static_cast<std::uint64_t>(7 + group.rank()));
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t count = parameters[i].numel();
    out["own." + std::to_string(i)] = (at::randn({count}) * at::exp(4 * at::randn({count}))).to(device);
  }
  for (const bool reduce : {false, true}) {
    at::Tensor loss = at::zeros({}, device);
    for (std::size_t i = 0; i < 3; ++i) loss = loss + (parameters[i] * out.at("own." + std::to_string(i))).sum() / 2;
    reducer.backward(loss, reduce ? BackwardPass::last : BackwardPass::some);
  }
  for (std::size_t i = 0; i < 3; ++i) out["mean." + std::to_string(i)] = parameters[i].grad();
  EXPECT_FALSE(parameters[3].grad().defined());
  return out;
}

TEST_P(Ranks, ReducerGivesEachRankItsOwnElementsOfTheMeans) {
  run([](const ProcessGroup& group, const at::Device& device) -> Tensors {
    for (const Compression compression : {Compression::none, Compression::bf16}) {
      std::vector<at::Tensor> parameters;
      for (const std::int64_t count : {5000, 3, 40, 7, 2100, 64}) parameters.push_back(at::ones({count}, device).requires_grad_(true));
      const std::vector<bool> whole{false, false, false, false, false, true};
      const auto shards = std::make_shared<GradientShards>(std::make_shared<FlatShards>(parameters, whole, group, 0.004));
      EXPECT_GT(shards->of->buckets().size(), 2U);
      at::manual_seed(static_cast<std::uint64_t>(5 + group.rank()));
      std::vector<at::Tensor> factors;
      for (const at::Tensor& each : parameters) factors.push_back(at::randn_like(each));
      // The first parameter is used by the last rank only, the second one by none, and the third one only by the pass that stays on its rank.
      const auto loss = [&](std::size_t first) {
        at::Tensor out = at::zeros({}, device);
        for (std::size_t i = first; i < parameters.size(); ++i)
          if (i != 1 && i != 2 && (i != 0 || group.rank() + 1 == group.size())) out = out + (parameters[i] * factors[i]).sum();
        return out;
      };
      const auto all_passes = [&](GradientReducer& reducer) {
        reducer.backward((parameters[2] * factors[2]).sum(), BackwardPass::few);
        reducer.backward(loss(0), BackwardPass::some);
        reducer.backward(loss(3) * 2, BackwardPass::last);
      };
      std::vector<at::Tensor> means;
      {
        GradientReducer plain(parameters, group, 0.004, compression);
        all_passes(plain);
        for (const at::Tensor& each : parameters) means.push_back(each.grad().defined() ? each.grad().clone() : at::Tensor());
        for (at::Tensor& each : parameters) each.mutable_grad().reset();
      }
      GradientReducer reducer(parameters, group, 0.004, compression, false, shards);
      for (int step = 0; step < 2; ++step) {
        shards->own.assign(parameters.size(), {});
        all_passes(reducer);
        for (std::size_t i = 0; i < parameters.size(); ++i) {
          SCOPED_TRACE(i);
          EXPECT_FALSE(parameters[i].grad().defined());
          EXPECT_EQ(shards->own[i].defined(), means[i].defined());
          if (!shards->own[i].defined() || !means[i].defined()) continue;
          const auto& piece = shards->of->own(i);
          const at::Tensor expected = piece ? means[i].slice(0, piece->begin, piece->end) : means[i].slice(0, 0, 0);
          const double tolerance = compression == Compression::none ? 1e-6 : 0.02 * group.size();
          EXPECT_TRUE(at::allclose(shards->own[i], expected, tolerance, tolerance));
        }
      }
    }
    return {};
  });
}

TEST_P(Ranks, Bf16CompressionRoundsTheGradientOfEachRankAndTheirSum) {
  const int size = GetParam().size;
  const auto reduced_by = [](Compression compression) {
    return run(
        [&](const ProcessGroup& group, const at::Device& device) { return reduced(group, device, compression); });
  };
  const std::vector<Tensors> rounded = reduced_by(Compression::bf16), exact = reduced_by(Compression::none);
  for (const char* index : {"0", "1", "2"}) {
    const std::string own = std::string("own.") + index, mean = std::string("mean.") + index;
    for (const Tensors& rank : rounded) EXPECT_TRUE(at::equal(rank.at(mean), rounded[0].at(mean))) << mean;
    if (size == 2) {
      const at::Tensor sum = rounded[0].at(own).to(at::kBFloat16) + rounded[1].at(own).to(at::kBFloat16);
      EXPECT_TRUE(at::equal(rounded[0].at(mean), sum.to(at::kFloat) / 2)) << mean;
    }
    at::Tensor magnitude = at::zeros_like(rounded[0].at(own));
    for (const Tensors& rank : rounded) magnitude += rank.at(own).abs() / size;
    const at::Tensor off = (rounded[0].at(mean) - exact[0].at(mean)).abs();
    EXPECT_TRUE((off <= 1.01 * size / 256.0 * magnitude).all().item<bool>()) << mean;
    EXPECT_GT(off.max().item<double>(), 0) << "nothing was rounded";
  }
}

}  // namespace
}  // namespace tessera
