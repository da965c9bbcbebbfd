// Tests optimizers whose state is sharded over ranks. Outside run_ranks, this process must not compute anything; ranks.h says why.
#include <filesystem>
#include <set>
#include <thread>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/distributed/optimizer_sharding.h"
#include "src/optim/adamw.h"
#include "src/optim/lamb.h"
#include "src/optim/lion.h"
#include "src/optim/muon.h"
#include "src/optim/sgd.h"
#include "src/training/trainer.h"
#include "tests/distributed/ranks.h"
#include "tests/support/full_disk.h"
#include "tests/training/tiny_run.h"
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

TEST(BalancedOwners, NoRankHoldsMoreThanTheMeanPlusTheLargest) {
  run_ranks(1, [](const ProcessGroup&) -> Tensors {
    std::vector<at::Tensor> tensors;
    for (const std::int64_t count : {3, 100, 7, 7, 50, 1, 60, 2}) tensors.push_back(at::empty({count}));
    for (const int ranks : {1, 2, 3, 20}) {
      const std::vector<int> of = balanced_owners(tensors, ranks);
      std::vector<std::int64_t> elements(static_cast<std::size_t>(ranks));
      for (std::size_t i = 0; i < of.size(); ++i) elements[static_cast<std::size_t>(of[i])] += tensors[i].numel();
      for (const std::int64_t each : elements) EXPECT_LE(each, 230 / ranks + 100);
    }
    // Tensors are given out in order of size: rank 0 gets 100 elements, rank 1 gets 60 and 50, rank 0 gets 7 and 7, rank 1 gets 3 and 2,
    // and rank 0 gets 1. In the end, each rank has 115 elements.
    EXPECT_EQ(balanced_owners(tensors, 2), (std::vector<int>{1, 0, 0, 0, 1, 0, 1, 1}));
    return {};
  });
}

TEST(FlatShards, GiveEachRankAnEvenPartOfEveryBucket) {
  run_ranks(1, [](const ProcessGroup& group) -> Tensors {
    std::vector<at::Tensor> tensors;
    for (const std::int64_t count : {50'000, 3, 1'025, 7, 200'000}) tensors.push_back(at::empty({count}));
    std::vector<bool> whole(tensors.size());
    EXPECT_EQ(FlatShards(tensors, whole, group, 25).pieces(0).size(), tensors.size());
    return {};
  });
  const auto ranks = run_ranks(4, [](const ProcessGroup& group) -> Tensors {
    std::vector<at::Tensor> tensors;
    for (const std::int64_t count : {50'000, 3, 1'025, 7, 200'000}) tensors.push_back(at::full({count}, group.rank(), at::kFloat));
    const FlatShards shards(tensors, {false, false, false, false, true}, group, 0.1);
    std::int64_t cut = 0, elements = 0;
    for (int rank = 0; rank < 4; ++rank)
      for (const Piece& piece : shards.pieces(rank)) {
        EXPECT_EQ(piece.begin % 1024, 0);
        EXPECT_TRUE(piece.tensor != 4 || piece.end == 200'000);
        if (rank == group.rank() && piece.tensor != 4) cut += piece.end - piece.begin;
        elements += piece.end - piece.begin;
      }
    EXPECT_EQ(elements, 251'035);
    // The first bucket holds 25,600 float32 numbers; a tensor that is larger is a bucket of its own.
    EXPECT_LE(cut, 50'000 / 4 + 1'035 / 4 + 2 * 1024);
    shards.distribute();
    Tensors out;
    for (std::size_t i = 0; i < tensors.size(); ++i) out[std::to_string(i)] = tensors[i];
    return out;
  });
  for (const Tensors& rank : ranks) expect_equal(rank, ranks[0]);
  EXPECT_EQ(std::get<0>(at::_unique(ranks[0].at("0"))).numel(), 4);
}

struct Case {
  const char* name;
  bool rounds_sums;  // whether updates depend on sums over whole parameters, which round differently if several ranks own the parts
  std::function<std::unique_ptr<Optimizer>(std::vector<NamedParameter>)> make;
};
void PrintTo(const Case& given, std::ostream* out) {
  *out << given.name;
}

class ShardedOptimizer : public ::testing::TestWithParam<Case> {
 protected:
  // Returns parameters of several shapes and layouts, which are equal on all ranks. One is larger than all others together.
  static std::vector<NamedParameter> parameters() {
    at::manual_seed(1);
    std::vector<NamedParameter> out;
    const auto add = [&](const char* name, const at::Tensor& values, double lr_scale = 1,
                         std::int64_t frozen_steps = 0) {
      out.push_back({name, values.clone().set_requires_grad(true), lr_scale, frozen_steps});
    };
    add("embedding", at::randn({80, 60}));  // several ranks own a part of it
    add("visual.conv1.weight", at::randn({4, 3, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast));
    add("mlp.weight", at::randn({16, 8}), 0.5, 2);
    add("mlp.bias", at::randn({16}), 0.5);
    add("unused", at::randn({5, 5}));
    add("logit_scale", at::randn({}));
    add("transposed", at::randn({6, 9}).t(), 1, 4);
    return out;
  }

  // Sets a step's reduced gradients, which are equal on all ranks. The parameter "unused" has no gradient.
  static void set_gradients(const Optimizer& optimizer, int step) {
    at::manual_seed(static_cast<std::uint64_t>(100 + step));
    for (const NamedParameter& each : optimizer.parameters())
      if (each.name != "unused") each.tensor.mutable_grad() = at::randn(each.tensor.sizes());
  }

  static void take_steps(Optimizer& optimizer, int from, int to) {
    for (int step = from; step < to; ++step) {
      set_gradients(optimizer, step);
      optimizer.step(0.01 * (step + 1), 0.1 * (step + 1));
    }
  }

  // Expects equal bits, unless the optimizer's updates depend on sums over whole parameters.
  static void expect_same(const at::Tensor& got, const at::Tensor& expected, const std::string& what) {
    if (GetParam().rounds_sums)
      EXPECT_TRUE(at::allclose(got, expected, 1e-6, 1e-7)) << what;
    else
      EXPECT_TRUE(at::equal(got, expected)) << what;
  }

  static Tensors values(const Optimizer& optimizer, const Tensors& state) {
    Tensors out;
    for (const NamedParameter& each : optimizer.parameters()) out["parameter." + each.name] = each.tensor;
    for (const auto& [name, tensor] : state) out["state." + name] = tensor;
    return out;
  }
};

AdamWSettings stable_adamw() {
  AdamWSettings settings;
  settings.update_clipping = true;
  settings.decay.weight_decay = 0.3;
  return settings;
}

template <class Made, class Settings>
Case named(const char* name, const Settings& settings, bool rounded = false) {
  const bool rounds_sums = std::string(name) == "lamb" || std::string(name) == "stable_adamw";
  return {name, rounds_sums, [settings, rounded](std::vector<NamedParameter> p) {
            auto out = std::make_unique<Made>(std::move(p), settings);
            if (rounded) out->round_moments(7);
            return out;
          }};
}

INSTANTIATE_TEST_SUITE_P(Kinds, ShardedOptimizer,
                         ::testing::Values(named<AdamW>("adamw", AdamWSettings{}),
                                           named<AdamW>("stable_adamw", stable_adamw()),
                                           named<Lamb>("lamb", LambSettings{}), named<Sgd>("sgd", SgdSettings{}),
                                           named<Sgd>("plain_sgd", SgdSettings{.momentum = 0}), named<Lion>("lion", LionSettings{}),
                                           named<Muon>("muon", MuonSettings{.adamw_lr = 1e-3}),
                                           named<AdamW>("rounded_adamw", AdamWSettings{}, true),
                                           named<Muon>("rounded_muon", MuonSettings{}, true)),
                         [](const auto& given) { return given.param.name; });

TEST_P(ShardedOptimizer, MatchesTheUnshardedOneOnAnyNumberOfRanks) {
  const auto whole = run_ranks(1, [&](const ProcessGroup&) -> Tensors {
    const auto optimizer = GetParam().make(parameters());
    take_steps(*optimizer, 0, 3);
    Tensors out;
    for (const auto& [name, tensor] : values(*optimizer, optimizer->gather_state())) out["3." + name] = tensor.clone();
    take_steps(*optimizer, 3, 5);
    for (const auto& [name, tensor] : values(*optimizer, optimizer->gather_state())) out["5." + name] = tensor;
    return out;
  });
  const auto after = [&](const char* step) {
    Tensors out;
    for (const auto& [name, tensor] : whole[0])
      if (name.starts_with(step)) out[name.substr(2)] = tensor;
    return out;
  };
  const Tensors at_three = after("3."), at_five = after("5.");

  for (const int size : {2, 3, 9}) {  // with nine ranks, some hold no optimizer state
    const auto ranks = run_ranks(size, [&](const ProcessGroup& group) -> Tensors {
      const auto first = GetParam().make(parameters());
      first->shard(group, 1e-4);  // transfers about a hundred bytes at a time
      take_steps(*first, 0, 3);
      const Tensors saved = first->gather_state();
      if (group.first())
        for (const auto& [name, tensor] : values(*first, saved)) expect_same(tensor, at_three.at(name), name);
      EXPECT_TRUE(group.first() || saved.empty());
      std::int64_t bytes = 0;
      for (const auto& [name, tensor] : at_three)
        if (name.starts_with("state.") && name != "state.step") bytes += static_cast<std::int64_t>(tensor.nbytes());
      EXPECT_EQ(first->state_bytes(), bytes);

      // Resumes from the state that a single process saved.
      const auto second = GetParam().make(parameters());
      second->shard(group, 25);
      Tensors state;
      const at::NoGradGuard no_grad;
      for (const auto& [name, tensor] : at_three)
        if (name.starts_with("state.")) state[name.substr(6)] = tensor;
      for (const NamedParameter& each : second->parameters()) each.tensor.copy_(at_three.at("parameter." + each.name));
      second->load_state(state, "test");
      take_steps(*second, 3, 5);

      std::int64_t kept = 0;
      for (const auto& [name, tensor] : second->state())
        if (name != "step") kept += tensor.numel();
      Tensors out = values(*second, second->gather_state());
      out["kept"] = at::scalar_tensor(kept, at::kLong);
      return out;
    });
    std::int64_t kept = 0, all = 0;
    for (const auto& [name, tensor] : at_five)
      if (name.starts_with("state.") && name != "state.step") all += tensor.numel();
    for (const Tensors& rank : ranks) {
      kept += rank.at("kept").item<std::int64_t>();
      for (const auto& [name, tensor] : at_five) {
        if (!name.starts_with("parameter.") && &rank != &ranks[0]) continue;
        expect_same(rank.at(name), tensor, concat(name, " of ", size, " ranks"));
      }
    }
    EXPECT_EQ(kept, all) << "each moment must be kept by exactly one rank";
  }
}

class ShardedRun : public ::testing::Test {
 protected:
  static Tensors train(const std::string& folder, std::vector<std::string> overrides, const std::string& resume,
                       const ProcessGroup& group) {
    overrides.push_back("data.loader.batch_size=4");
    Trainer trainer(tiny_config(folder, overrides), resume, group);
    EXPECT_EQ(trainer.run(), Outcome::finished);
    Tensors out = end_of(trainer);
    if (!group.first()) return out;
    const Checkpoint checkpoint = checkpoint_of(folder);
    for (const auto& [name, tensor] : whole_state(checkpoint)) out["state." + name] = tensor;
    for (const auto& [name, tensor] : checkpoint.ema) out["average." + name] = tensor;
    return out;
  }
  std::vector<Tensors> run(int size, const std::string& name, const std::vector<std::string>& overrides,
                           const std::string& resume = "none") const {
    return run_ranks(size, [&](const ProcessGroup& group) { return train(folder_ / name, overrides, resume, group); });
  }
  static void expect_equal(const std::vector<Tensors>& got, const std::vector<Tensors>& expected) {
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t rank = 0; rank < got.size(); ++rank) tessera::expect_equal(got[rank], expected[rank]);
  }
  /// Expects the same bits from runs with both settings, also if a run of one of them resumes one of the other.
  void expect_equal_and_resumable(const std::vector<std::string>& plain, const std::vector<std::string>& sharded) const {
    const auto expected = run(2, "plain", plain);
    expect_equal(run(2, "sharded", sharded), expected);
    expect_equal(run(2, "on", sharded, folder_ / "plain/checkpoints/step_0000003"), expected);
    expect_equal(run(2, "off", plain, folder_ / "sharded/checkpoints/step_0000003"), expected);
    // With another number of ranks the batches differ, but the run must still resume.
    run(3, "three", sharded, folder_ / "sharded/checkpoints/step_0000003");
    run(1, "one", sharded, folder_ / "sharded/checkpoints/step_0000003");
  }
  TemporaryFolder folder_;
};

TEST_F(ShardedRun, MatchesAndResumesTheUnshardedOneBitForBit) {
  const std::vector<std::string> plain{"optimizer={name: adamw, lr: 1.0e-2, update_clipping: true}",
                                       "parameters={frozen: [visual.conv1*], groups: [{match: [text], lr_scale: 0.5}, "
                                       "{match: [visual.proj], frozen_steps: 4}], layer_decay: {image: 0.8}}",
                                       "training.ema={decay: 0.9}",
                                       "training.accumulation=2",
                                       "schedule.weight_decay_end=0.5",
                                       "training.clip_mode=per_tensor"};
  std::vector<std::string> sharded = plain;
  sharded.push_back("distributed.shard=optimizer");
  expect_equal_and_resumable(plain, sharded);
}

TEST_F(ShardedRun, TrainsWithMuonAndRoundedMomentsAsWithoutSharding) {
  const std::vector<std::string> settings{"optimizer={name: muon, lr: 1.0e-2}", "training.moments=bfloat16",
                                          "training.clip_norm=null"};
  std::vector<std::string> sharded = settings;
  sharded.push_back("distributed.shard=optimizer");
  const auto expected = run(2, "plain", settings);
  expect_equal(run(2, "sharded", sharded), expected);
  expect_equal(run(2, "gradients", with(settings, {"distributed.shard=gradients"})), expected);
  expect_equal(run(2, "resumed", settings, folder_ / "sharded/checkpoints/step_0000003"), expected);
}

TEST_F(ShardedRun, TrainsWithLambAndRanksStayEqual) {
  // With a large eps, the rounding of gradients that should be zero does not decide about updates.
  const std::vector<std::string> settings{"optimizer={name: lamb, lr: 1.0e-2, eps: 1.0e-3}"};
  const auto expected = run(2, "plain", settings), got = run(2, "sharded", with(settings, {"distributed.shard=optimizer"}));
  // LAMB's norms are sums over the ranks, which round differently.
  for (const auto& [name, tensor] : expected[0]) EXPECT_TRUE(at::allclose(got[0].at(name), tensor, 1e-4, 1e-5)) << name;
  const auto rounded = run(2, "rounded", with(settings, {"distributed.shard=optimizer", "distributed.compression=bf16"}));
  for (const auto& ranks : {got, rounded})
    for (const auto& [name, tensor] : ranks[1]) EXPECT_TRUE(at::equal(ranks[0].at(name), tensor)) << name;
}

TEST_F(ShardedRun, TrainsWithBf16GradientsAsWithoutSharding) {
  const std::vector<std::string> settings{"distributed.compression=bf16", "training.clip_norm=null"};
  const auto expected = run(2, "plain", settings);
  expect_equal(run(2, "sharded", with(settings, {"distributed.shard=optimizer"})), expected);
  expect_equal(run(2, "gradients", with(settings, {"distributed.shard=gradients"})), expected);
}

/// Runs whose gradients are sharded, too. The bits are those without sharding if nothing depends on a sum over the gradients of several ranks,
/// or over the gradients of several batches.
class ShardedGradients : public ShardedRun {
 protected:
  static void expect_close(const std::vector<Tensors>& got, const std::vector<Tensors>& expected) {
    for (std::size_t rank = 0; rank < got.size(); ++rank)
      for (const auto& [name, tensor] : expected[rank]) {
        EXPECT_TRUE(at::allclose(got[rank].at(name), tensor, 1e-4, 1e-6)) << name << " of rank " << rank;
        if (!got[0].contains(name) || name.starts_with("state.")) continue;
        EXPECT_TRUE(at::equal(got[rank].at(name), got[0].at(name))) << name;
      }
  }
};

TEST_F(ShardedGradients, MatchAndResumeTheUnshardedRunBitForBit) {
  const std::vector<std::string> plain{"optimizer={name: adamw, lr: 1.0e-2}", "training.clip_norm=null", "training.ema={decay: 0.9}",
                                       "distributed.bucket_mb=0.01",
                                       "parameters={frozen: [visual.conv1*], groups: [{match: [visual.proj], frozen_steps: 4}]}"};
  const std::vector<std::string> sharded = with(plain, {"distributed.shard=gradients"});
  expect_equal_and_resumable(plain, sharded);
  expect_same_curve(folder_ / "plain", folder_ / "sharded", 1e-6);
}

TEST_F(ShardedGradients, EqualTheUnshardedOnesWithEveryKindOfPass) {
  // With a large eps, the rounding of gradients that should be zero does not decide about updates.
  const std::string adamw = "optimizer={name: adamw, lr: 1.0e-2, eps: 1.0e-3}";
  const std::vector<std::vector<std::string>> cases{
      {adamw, "training.accumulation=2", "training.clip_norm=0.1"},
      {adamw, "training.micro_batch=2", "training.clip_norm=0.1"},
      {adamw, "training.clip_norm=0.1", "training.clip_mode=per_tensor", "training.micro_batch=2", "training.accumulation=2"},
      {"optimizer={name: lamb, lr: 1.0e-2, eps: 1.0e-3}"},
      {"optimizer={name: adamw, lr: 1.0e-2, eps: 1.0e-3, update_clipping: true}"},
      {adamw, "adapt.image={lora: {rank: 2}}"},
      {adamw, "model.image.encoder.grad_checkpointing=true"},
  };
  for (std::size_t i = 0; i < cases.size(); ++i)
    for (const int ranks : {2, 4}) {
      SCOPED_TRACE(cases[i].back() + " on " + std::to_string(ranks) + " ranks");
      const std::string name = std::to_string(10 * i + static_cast<std::size_t>(ranks));
      const auto settings = with(cases[i], {"distributed.bucket_mb=0.01"});
      expect_close(run(ranks, name + "sharded", with(settings, {"distributed.shard=gradients"})), run(ranks, name, settings));
      expect_same_curve(folder_ / name, folder_ / (name + "sharded"), 1e-5);
    }
}

TEST_F(ShardedRun, EachRankSavesItsPartOfTheState) {
  for (const char* background : {"true", "false"}) {
    const std::string name = std::string("background_") + background;
    run(3, name, {"distributed.shard=optimizer", std::string("checkpoint.background=") + background});
    run_ranks(1, [&](const ProcessGroup&) -> Tensors {
      const std::string folder = folder_ / name + "/checkpoints/step_0000006";
      const auto manifest = nlohmann::json::parse(io::read_file(folder + "/manifest.json"));
      std::set<std::string> files;
      for (const auto& entry : std::filesystem::directory_iterator(folder))
        if (entry.path().filename() != "manifest.json") files.insert(entry.path().filename());
      std::set<std::string> listed;
      for (const auto& [file, facts] : manifest.at("files").items()) listed.insert(file);
      EXPECT_EQ(files, listed);
      EXPECT_EQ(std::ranges::count_if(files, [](const std::string& file) { return file.starts_with("optimizer_000"); }), 3);
      const Checkpoint checkpoint = load_checkpoint(folder);
      EXPECT_EQ(checkpoint.optimizer.size(), 1U);
      EXPECT_EQ(checkpoint.parts.size(), 3U);
      const std::string part = folder + "/optimizer_0001_of_0003.safetensors";
      std::string bytes = io::read_file(part);
      bytes.back() ^= 1;
      io::write_file(part, bytes);
      EXPECT_EQ(error_of([&] { load_checkpoint(folder); }), part + ": damaged: its checksum differs from the manifest's");
      std::filesystem::remove(part);
      EXPECT_EQ(error_of([&] { load_checkpoint(folder); }), part + ": missing");
      EXPECT_TRUE(contains(error_of([&] {
                             const auto optimizer = build_training_run(tiny_config(folder_ / "other", {"data.loader.batch_size=4"})).optimizer;
                             optimizer->load_state(load_checkpoint(folder, /*verify=*/false).parts, 6, "here");
                           }),
                           "here: the optimizer's state lacks "));
      return {};
    });
  }
}

/// Runs in which the disk of one rank is full while step 4 is saved. A save is due at every second step and at the end.
class FullDiskOfARank : public ShardedRun {
 protected:
  static inline const std::vector<std::string> kSaves{"training.steps=7", "checkpoint.every_steps=2", "checkpoint.keep_last=4",
                                                      "data.loader.batch_size=4"};

  /// Trains one rank. `file` is the last one that the rank `writer` writes of each checkpoint. Its disk is full from the step after the one in
  /// which the checkpoint of step 2 was written until the ranks have agreed on the save of step 4, as they do before they save step 6.
  static void train_with_full_disk(Trainer& trainer, const ProcessGroup& group, const std::string& folder, int writer, const std::string& file) {
    namespace fs = std::filesystem;
    const std::string checkpoints = folder + "/checkpoints/";
    std::optional<FullDisk> full;
    step_observer() = [&](const StepContext& context) {
      if (group.rank() != writer) return;
      const auto written = [&] { return fs::exists(checkpoints + ".writing_step_0000002/" + file + ".facts") || fs::exists(checkpoints + "step_0000002"); };
      while (context.step == 3 && !written()) std::this_thread::yield();
      if (context.step == 3) full.emplace(1000);
      if (context.step == 6) full.reset();
    };
    EXPECT_EQ(trainer.run(), Outcome::finished);
    step_observer() = nullptr;
    if (!group.first()) return;
    for (const char* saved : {"step_0000002", "step_0000007"}) EXPECT_TRUE(fs::exists(checkpoints + saved)) << saved;
    EXPECT_FALSE(fs::exists(checkpoints + "step_0000004"));
    EXPECT_TRUE(contains(io::read_file(folder + "/log.txt"), "step 4 is not saved: a rank could not write its part of the checkpoint"));
  }
};

TEST_F(FullDiskOfARank, LeavesTheEarlierCheckpointAndTheRun) {
  const auto settings = with(kSaves, {"objective={name: test_observed}", "distributed.shard=gradients"});
  for (const char* background : {"true", "false"}) {
    const std::string folder = folder_ / (std::string("full_") + background);
    const auto got = run_ranks(2, [&](const ProcessGroup& group) -> Tensors {
      Trainer trainer(tiny_config(folder, with(settings, {std::string("checkpoint.background=") + background})), "none", group);
      train_with_full_disk(trainer, group, folder, 1, "optimizer_0001_of_0002.safetensors");
      return end_of(trainer);
    });
    run_ranks(2, [&](const ProcessGroup& group) -> Tensors {
      Trainer trainer(tiny_config(folder_ / (std::string("resumed_") + background), settings), folder + "/checkpoints/step_0000002", group);
      EXPECT_EQ(trainer.run(), Outcome::finished);
      tessera::expect_equal(end_of(trainer), got[static_cast<std::size_t>(group.rank())]);
      return {};
    });
  }
}

// Rank 1 writes the averages, and rank 2 the teacher, whether or not the optimizer's state is sharded.
TEST_F(FullDiskOfARank, LosesTheAveragesThatThisRankWrites) {
  struct LostFile {
    int writer;
    std::string file;
    std::vector<std::string> settings;
  };
  const std::string average = "training.ema={decay: 0.9}";
  const std::vector<LostFile> cases{
      {1, "ema.safetensors", {"objective={name: test_observed}", average}},
      {1, "optimizer_0001_of_0003.safetensors", {"objective={name: test_observed}", average, "distributed.shard=optimizer"}},
      {2, "teacher.safetensors", {"objective={name: weighted_sum, objectives: [{name: test_teacher}, {name: test_observed}]}", average}}};
  for (const LostFile& each : cases)
    for (const char* background : {"true", "false"}) {
      SCOPED_TRACE(concat(each.file, ", background ", background));
      const std::string folder = folder_ / concat(each.file, background);
      run_ranks(3, [&](const ProcessGroup& group) -> Tensors {
        const auto of_run = with(with(kSaves, each.settings), {std::string("checkpoint.background=") + background});
        Trainer trainer(tiny_config(folder, of_run), "none", group);
        train_with_full_disk(trainer, group, folder, each.writer, each.file);
        if (!group.first()) return {};
        const Checkpoint last = load_checkpoint(folder + "/checkpoints/step_0000007");
        tessera::expect_equal(last.ema, trainer.training_run().ema->averages());
        if (each.writer == 2) tessera::expect_equal(last.teacher, trainer.training_run().teacher->ema.averages());
        return {};
      });
    }
}

TEST_F(ShardedGradients, CannotBeRecorded) {
  run_ranks(2, [&](const ProcessGroup& group) -> Tensors {
    EXPECT_TRUE(contains(error_of([&] {
                           Trainer(tiny_config(folder_ / "recorded", {"training.cuda_graph=true", "distributed.shard=gradients"}), "none", group);
                         }),
                         "set distributed.shard to optimizer"));
    return {};
  });
}

}  // namespace
}  // namespace tessera
