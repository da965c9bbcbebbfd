// Tests runs of several ranks. Outside run_ranks, this process must not compute anything; ranks.h says why.
#include "tests/distributed/ranks.h"

#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/wait.h>
#include <thread>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/data/image/encode.h"
#include "src/data/shapes/shapes.h"
#include "src/measure/step_meter.h"
#include "src/training/memory/memory_plan.h"
#include "src/training/step/grad_cache.h"
#include "src/training/trainer.h"
#include "tests/support/test_name.h"
#include "tests/training/tiny_run.h"
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

// The number of first steps whose gradient norms are compared. Later, rounding may change a token's best patch, and FILIP's gradient jumps.
constexpr std::size_t kSteadyGradients = 4;

/// Trains on batches of 8 samples over all ranks. Returns the state at the end of the run.
Tensors train(const std::string& folder, const std::vector<std::string>& overrides, const std::string& resume,
              const ProcessGroup& group) {
  const std::string batch = concat("data.loader.batch_size=", 8 / group.size());
  Trainer trainer(tiny_config(folder, with({batch}, overrides)), resume, group);
  const Outcome outcome = trainer.run();
  Tensors out{{"outcome", at::full({1}, static_cast<std::int64_t>(outcome), at::kLong)},
              {"signal", at::full({1}, trainer.stop_signal(), at::kLong)},
              {"step", at::full({1}, trainer.state().step, at::kLong)},
              {"samples", at::full({1}, trainer.state().samples, at::kLong)}};
  for (const auto& [name, tensor] : end_of(trainer)) out["weight." + name] = tensor;
  return out;
}

void expect_equal_weights(const Tensors& a, const Tensors& b) {
  for (const auto& [name, tensor] : a) {
    if (!name.starts_with("weight.")) continue;
    EXPECT_TRUE(at::equal(tensor, b.at(name))) << name;
  }
}

class RanksTest : public ::testing::TestWithParam<const char*> {
 protected:
  /// Trains in the folder `name` on this number of ranks. Returns each rank's state at the end.
  std::vector<Tensors> run(int ranks, const std::string& name, const std::vector<std::string>& overrides,
                           const std::string& resume = "none", const std::string& backend = "auto") const {
    return run_ranks(
        ranks, [&](const ProcessGroup& group) { return train(folder_ / name, overrides, resume, group); }, backend);
  }
  /// Trains on one rank with the overrides `alone`, and on two with `both`. Expects the same curve, and equal weights on both ranks.
  /// Returns the states of the single rank and of the two. The runs are in the folders PREFIX_alone and PREFIX_both.
  std::vector<Tensors> expect_same_on_two(const std::string& prefix, const std::vector<std::string>& alone,
                                          const std::vector<std::string>& both, double tolerance = 2e-4) const {
    std::vector<Tensors> out = run(1, prefix + "_alone", alone);
    const std::vector<Tensors> two = run(2, prefix + "_both", both);
    out.insert(out.end(), two.begin(), two.end());
    expect_same_curve(folder_ / (prefix + "_both"), folder_ / (prefix + "_alone"), tolerance, kSteadyGradients);
    expect_equal_weights(out[1], out[2]);
    return out;
  }

  TemporaryFolder folder_;
};

class CurveOverRanks : public RanksTest {
 protected:
  /// Returns the overrides of the test case, followed by `more`.
  static std::vector<std::string> of_case(const std::vector<std::string>& more) {
    return with(overrides_of(GetParam()), more);
  }
};
INSTANTIATE_TEST_SUITE_P(Objectives, CurveOverRanks,
                         ::testing::Values("{name: clip}", "{name: clip, chunk: 3}",
                                           "{name: clip, mask_duplicates: true}", "{name: clip} with muon", "{name: clip} with lion", "{name: clip} with rounded moments", "{name: siglip}", "{name: siglip} with own shapes", "{name: sparc}",
                                           "{name: filip, token_drop_rate: 0.2}", "{name: siglip} with siglip",
                                           "{name: clip} with dinov3", "{name: sparc} with eva02",
                                           "{name: weighted_sum, objectives: [{name: clip}, {name: superclip}]}",
                                           "{name: multi_positive_clip, denominator: negatives} with captions",
                                           "{name: flair, heads: 2, init_logit_bias: -2} with captions",
                                           "{name: dreamlip} with captions",
                                           "{name: cosmos, heads: 2, local_crops: 2} with crops and captions",
                                           "{name: weighted_sum, objectives: [{name: siglip}, {name: captioning, decoder: {context_length: 24, layers: 1, heads: 2}}]}",
                                           "{name: weighted_sum, objectives: [{name: siglip, hard_negatives: all}, {name: region_contrast, hard_weight: 0.5, rank_weight: 0.4, text_weight: 1}]} with boxes",
                                           "{name: weighted_sum, objectives: [{name: multi_positive_sigmoid}, {name: superclip, text_view: captions}]} with captions"),
                         test_name<const char*>);

// At least two epochs end within the twelve steps, because the data has only 40 samples.
TEST_P(CurveOverRanks, MatchesOneProcess) {
  for (const std::string accumulation : {"1", "2"}) {
    const std::vector<std::string> overrides = of_case({"training.steps=12", "training.accumulation=" + accumulation});
    const std::string alone = accumulation + "_1";
    const auto one = run(1, alone, overrides);
    for (const int size : {2, 4}) {
      const std::string name = concat(accumulation, "_", size);
      const auto all = run(size, name, overrides);
      expect_same_curve(folder_ / name, folder_ / alone, 2e-4, kSteadyGradients);
      for (const Tensors& rank : all) {
        expect_equal_weights(rank, all[0]);
        EXPECT_TRUE(at::equal(rank.at("samples"), one[0].at("samples")));
      }
    }
  }
}

// The ranks' longest captions differ in length, so the ranks process texts of different lengths.
TEST_P(CurveOverRanks, WithoutPaddingMatchesOneProcessWithPadding) {
  for (const std::string attention : {"causal", "bidirectional"}) {
    const auto trained = [&](int ranks, bool skip) {
      const std::string name = concat(attention, ranks, skip);
      run(ranks, name,
          of_case({"training.steps=6", "model.text.encoder.attention=" + attention,
                   concat("model.text.encoder.skip_padding=", skip ? "true" : "false")}));
      return folder_ / name;
    };
    const std::string padded = trained(1, false);
    expect_same_curve(trained(1, true), padded, 2e-4, kSteadyGradients);
    expect_same_curve(trained(2, true), padded, 2e-4, kSteadyGradients);
  }
}

// Collectives, the gradient reducer and the sharded optimizer all use the backend.
TEST_P(CurveOverRanks, OneRankWithABackendMatchesOneWithout) {
  const std::vector<std::string> overrides =
      of_case({"training.steps=6", "distributed.shard=optimizer", "distributed.backend=gloo"});
  for (const char* backend : {"auto", "gloo"}) run(1, backend, overrides, "none", backend);
  expect_same_curve(folder_ / "gloo", folder_ / "auto", 2e-4, kSteadyGradients);
}

// Except with batch norm, neither the number of ranks nor the chunk size changes what is learned.
TEST_P(CurveOverRanks, WithGradCacheMatchesOneProcess) {
  const std::vector<std::string> plain = of_case({"training.steps=6"});
  expect_same_on_two("run", plain, with(plain, {"training.micro_batch=3", "model.image.encoder.grad_checkpointing=true"}));
}

// Covers slots, a codebook that both towers share, and parameters without a gradient. If values have their own projection, the bias of the
// keys is such a parameter.
TEST_F(RanksTest, ReadOutsMatchOneProcess) {
  const std::map<std::string, std::string> read_outs = {
      {"sparo", "{name: sparo, slots: 4, slot_width: 4, key_width: 3, group_size: 2}"},
      {"sparo_full", "{name: sparo, slots: 4, slot_width: 4, key_width: 3, share_values: false, layer_norm: full}"},
      {"fdt", "{name: fdt, codes: 12, code_width: 8, temperature: 1.0}"}};
  for (const auto& [name, read_out] : read_outs) {
    std::vector<std::string> plain{"training.steps=6", "model.image.projection=none", "model.text.projection=none"};
    for (const std::string tower : {"image", "text"}) {
      plain.push_back("model." + tower + ".readout=" + read_out);
      if (name == "fdt") plain.push_back("model." + tower + ".encoder.final_norm=none");
    }
    expect_same_on_two(name, plain, with(plain, {"training.micro_batch=3"}), 5e-4);
  }
}

// The sixteen steps span several epochs, in which the sources take turns.
TEST_F(RanksTest, MixturesMatchOneProcess) {
  for (const std::string mode : {"accumulate", "sequential"}) {
    const std::vector<std::string> overrides = {
        "data.train={name: mixture, mode: " + mode +
            ", sources: [{label: many, source: {name: shapes, size: 24, image_size: 16}}, {label: few, source: {name: "
            "shapes, size: 16, image_size: 16, seed: 5}}]}",
        "training.steps=16"};
    expect_same_on_two(mode, overrides, overrides);
  }
}

TEST_F(RanksTest, TeacherMatchesOneProcessAndIsEqualOnAllRanks) {
  const std::vector<std::string> plain{"objective={name: test_teacher}", "model.image.encoder.patch_dropout=0.5",
                                       "model.image.encoder.patch_size=4", "optimizer.eps=0.1"};
  const auto ends = expect_same_on_two("run", plain, with(plain, {"training.micro_batch=3"}));
  for (const auto& [name, tensor] : ends[0]) {
    if (!name.starts_with("weight.")) continue;
    EXPECT_TRUE(at::allclose(tensor, ends[1].at(name), 1e-4, 1e-5)) << name;
  }
}

// Twelve steps on 40 samples cross the ends of two epochs. The counts are integers and must equal the counts of one process exactly.
TEST_F(RanksTest, WordCountsOfSuperClipAreTheSameForAnyMicroBatch) {
  const std::vector<std::string> plain{"objective={name: superclip}", "training.steps=12"};
  const auto one = run(1, "one", plain);
  EXPECT_EQ(one[0].at("weight.objective.caption_count").item<std::int64_t>(), 96);
  for (const int ranks : {2, 4}) {
    const std::vector<std::string> cut =
        with(plain, {"training.micro_batch=1", "training.accumulation=2", concat("data.loader.batch_size=", 4 / ranks),
                     "distributed.shard=optimizer"});
    for (const auto& settings : {plain, cut}) {
      const std::string name = concat(ranks, "_", settings.size());
      const auto all = run(ranks, name, settings);
      expect_same_curve(folder_ / name, folder_ / "one", 2e-4);
      for (const Tensors& rank : all) {
        expect_equal_weights(rank, all[0]);
        for (const char* counts : {"weight.objective.document_count", "weight.objective.caption_count"})
          EXPECT_TRUE(at::equal(rank.at(counts), one[0].at(counts))) << counts << " of " << ranks;
      }
    }
  }
}

// The choice of an image's dropped patches must not depend on the rank or the chunk that encodes the image.
TEST_P(CurveOverRanks, WithPatchDropoutMatchesOneProcess) {
  if (needs_all_patches(GetParam())) GTEST_SKIP() << "it takes no patch_dropout";
  const std::vector<std::string> plain = of_case({"training.steps=6", "training.accumulation=2",
                                                  "model.image.encoder.patch_dropout=0.5", "model.image.encoder.patch_size=4"});
  expect_same_on_two("run", plain, with(plain, {"training.micro_batch=3"}));
}

// The dropout of an adapter's inputs depends only on row and token, not on the rank or chunk.
TEST_P(CurveOverRanks, WithLoraMatchesOneProcess) {
  const std::vector<std::string> plain =
      of_case({"training.steps=6", "adapt.image={lora: {rank: 4, dropout: 0.3, layers: [query, value, mlp_in]}}",
               "adapt.text={lora: {rank: 4, dropout: 0.3}}"});
  const std::vector<std::string> parts = with(plain, {"training.micro_batch=3", "model.text.encoder.grad_checkpointing=true",
                                                      "distributed.shard=optimizer"});
  const auto ends = expect_same_on_two("run", plain, parts);
  expect_equal_weights(run(2, "again", parts, folder_ / "run_both/checkpoints/step_0000003")[0], ends[1]);
}

// Checks that the planned memory of one rank's step agrees with the measured memory. A step's memory excludes weights, optimizer state
// and buckets.
TEST_P(CurveOverRanks, MemoryMatchesThePlan) {
  for (const char* micro_batch : {"null", "4"}) {
    const Config config = tiny_config(
        folder_ / "run", of_case({"data.loader.batch_size=16", std::string("training.micro_batch=") + micro_batch,
                                  "model.image.encoder.patch_size=4"}));
    const auto ranks = run_ranks(2, [&](const ProcessGroup& group) -> Tensors {
      TrainingRun run = build_training_run(config, group);
      PlanSettings settings;
      settings.rank = group.rank();
      settings.ranks = 2;
      settings.most_loss_samples = 8;
      const MemoryPlan plan = plan_memory(run, config, settings);
      run.optimizer->zero_grad();

      std::vector<at::Tensor> parameters;
      for (const NamedParameter& each : run.optimizer->parameters()) parameters.push_back(each.tensor);
      GradientReducer reducer(parameters, group, 25);
      StepContext context;
      context.group = group;
      const Batch loaded = run.loader->next();  // the loader's threads are not measured
      const MemoryMeter memory;
      const Batch batch = map_tensors(loaded, [](const at::Tensor& tensor) { return tensor.clone(); });
      if (const auto samples = config.training.micro_batch.of(16))
        cached_backward(run, reducer, batch, {*samples, "float32", {}, true, 7}, context);
      else
        reducer.backward(forward_loss(run, batch, "float32", context).total, BackwardPass::last);
      return {{"measured", at::full({1}, memory.peak(), at::kDouble)},
              {"planned", at::full({1}, plan.peak - plan.weights - plan.optimizer - plan.buckets, at::kDouble)}};
    });
    // For images that keep their aspect ratio, the plan assumes the largest number of patches. For captioning, it assumes captions of the
    // full context length.
    const std::string given = GetParam();
    const bool plans_for_the_largest =
        given.ends_with("own shapes") || given.find("captioning") != std::string::npos;
    for (const Tensors& rank : ranks) {
      const double measured = rank.at("measured").item<double>();
      const double planned = rank.at("planned").item<double>() / measured;
      // With boxes, the plan may underestimate the memory more than without boxes, because the plan sees only the first few samples, and
      // batches differ in the number of boxes and in the boxes' texts.
      EXPECT_GT(planned, given.ends_with("boxes") ? 0.85 : 0.92) << GetParam() << " in parts of " << micro_batch;
      EXPECT_LT(planned, plans_for_the_largest ? 1.5 : 1.08) << GetParam() << " in parts of " << micro_batch;
    }
  }
}

TEST_F(RanksTest, AutoMicroBatchIsEqualOnAllRanks) {
  const auto ranks = run(2, "run", {"training.micro_batch=auto"});
  expect_equal_weights(ranks[0], ranks[1]);
  EXPECT_TRUE(contains(io::read_file(folder_ / "run/config.yaml"), "micro_batch: 4"));
}

TEST_F(RanksTest, ResumesBitForBitOnTheSameRanksAndAtTheSameSampleOnOthers) {
  const std::string middle = folder_ / "whole/checkpoints/step_0000003";
  const auto unbroken = run(2, "whole", {}), resumed = run(2, "again", {}, middle);
  for (std::size_t rank = 0; rank < 2; ++rank) expect_equal_weights(unbroken[rank], resumed[rank]);

  run(1, "single", {}, middle);
  const auto expected = rows(folder_ / "whole"), got = rows(folder_ / "single");
  ASSERT_EQ(got.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(got[i]["loss"].get<double>(), expected[i + 3]["loss"].get<double>(), 1e-4);
}

// Starts on four ranks, and continues on two and on eight. The 24 steps on 40 samples cross the ends of four epochs. The run's large
// learning rate amplifies the rounding of another order of sums.
TEST_F(RanksTest, GlobalBatchKeepsTheRunOnAnyNumberOfRanks) {
  for (const std::string objective : {"clip", "siglip"}) {
    const std::vector<std::string> settings = {"training.global_batch=8", "training.steps=24", "checkpoint.every_steps=8", "checkpoint.keep_last=3",
                                               "objective={name: " + objective + "}"};
    const auto run_on = [&](int ranks, const std::string& name, const std::string& resume) {
      run_ranks(ranks, [&](const ProcessGroup& group) -> Tensors {
        Trainer trainer(tiny_config(folder_ / name, settings), resume, group);
        trainer.run();
        return {};
      });
      return rows(folder_ / name);
    };
    const std::string four = objective + "_4", two = objective + "_2";
    const auto alone = run_on(1, objective + "_1", "none"), first = run_on(4, four, "none"),
               second = run_on(2, two, folder_ / (four + "/checkpoints/step_0000008")),
               third = run_on(8, objective + "_8", folder_ / (two + "/checkpoints/step_0000016"));
    ASSERT_EQ(second.size(), 16U);
    ASSERT_EQ(third.size(), 8U);
    for (std::size_t step = 0; step < 24; ++step) {
      const auto& now = step < 8 ? first[step] : step < 16 ? second[step - 8] : third[step - 16];
      EXPECT_EQ(now["step"], alone[step]["step"]);
      EXPECT_EQ(now["samples"], alone[step]["samples"]);
      const double expected = alone[step]["loss"].get<double>();
      EXPECT_NEAR(now["loss"].get<double>(), expected, 2e-4 * (1 + expected)) << objective << " after step " << step;
    }
  }
}

TEST_F(RanksTest, AnotherNumberOfSamplesPerUpdateIsAWarning) {
  run(2, "two", {"training.steps=3"});
  run_ranks(1, [&](const ProcessGroup& group) -> Tensors {
    Trainer trainer(tiny_config(folder_ / "one", {"data.loader.batch_size=4"}), Resume(folder_ / "two"), group);
    trainer.run();
    return {};
  });
  EXPECT_TRUE(contains(io::read_file(folder_ / "one/log.txt"),
                       "an update now has 4 samples on all processes together, and it had 8: set training.global_batch=8 to keep the run as it was"));
}

// A signal during step 4 is announced with the batch after step 5's, so every rank knows of it when step 5 ends.
TEST_F(RanksTest, AllRanksStopAfterTheSameStepWhicheverOfThemGetsTheSignal) {
  for (const int ranks : {1, 2, 4})
    for (int receiver = 0; receiver < ranks; ++receiver) {
      const std::string name = concat(ranks, "_", receiver);
      const auto stopped = run_ranks(ranks, [&](const ProcessGroup& group) {
        step_observer() = [&](const StepContext& context) {
          if (context.step == 3 && group.rank() == receiver) ::raise(SIGTERM);
        };
        return train(folder_ / name, {"objective={name: test_observed}", "training.steps=40", "checkpoint.every_steps=0"}, "none", group);
      });
      for (const Tensors& rank : stopped) {
        EXPECT_EQ(rank.at("step").item<std::int64_t>(), ranks == 1 ? 4 : 5) << name;
        EXPECT_EQ(rank.at("signal").item<std::int64_t>(), SIGTERM);
      }
      EXPECT_TRUE(fs::exists(folder_ / (name + (ranks == 1 ? "/checkpoints/step_0000004" : "/checkpoints/step_0000005"))));
    }
}

TEST_F(RanksTest, SignalOnOneRankStopsAllAndTheRunResumes) {
  const std::string broken = folder_ / "broken";
  const std::vector<std::string> settings = {"checkpoint.every_steps=0", "training.steps=40"};
  const auto unbroken = run(2, "whole", settings);
  const auto stopped = run_ranks(2, [&](const ProcessGroup& group) {
    std::thread sender;
    if (group.rank() == 1) {
      std::signal(SIGUSR1, SIG_IGN);  // ignores the signal until the trainer installs its handler
      sender = std::thread([&] {
        const std::string file = broken + "/metrics.jsonl";
        while (!fs::exists(file) || fs::file_size(file) == 0) std::this_thread::yield();
        ::kill(::getpid(), SIGUSR1);
      });
    }
    const Tensors out = train(broken, settings, "none", group);
    if (sender.joinable()) sender.join();
    return out;
  });
  EXPECT_TRUE(at::equal(stopped[0].at("step"), stopped[1].at("step")));
  for (const Tensors& rank : stopped) {
    EXPECT_EQ(rank.at("outcome").item<std::int64_t>(), static_cast<std::int64_t>(Outcome::interrupted));
    EXPECT_EQ(rank.at("signal").item<std::int64_t>(), SIGUSR1);
  }
  const auto resumed = run(2, "broken", settings, "auto");
  expect_equal_weights(unbroken[0], resumed[0]);
  EXPECT_EQ(rows(broken).size(), 40U);
}

// A source in which every fifth sample is unreadable, so that one rank may finish an epoch before another.
class Patchy : public IndexedSource {
 public:
  Patchy()
      : shapes_([] {
          ShapesSettings settings;
          settings.size = 40;
          settings.image_size = 16;
          return settings;
        }()) {}
  std::int64_t size() const override { return shapes_.size(); }
  Sample get(std::int64_t index) const override {
    if (index % 5 == 0) throw SampleError("test", "unreadable");
    return shapes_.get(index);
  }
  std::string describe() const override { return "patchy shapes"; }

 private:
  ShapesSource shapes_;
};

TEST_F(RanksTest, CorruptSamplesNeitherHangRanksNorBreakTheResume) {
  sources().add<config::NoSettings>("test_patchy", "shapes with gaps",
                                    [](const config::NoSettings&) { return std::make_shared<Patchy>(); });
  const std::vector<std::string> settings = {"data.train={name: test_patchy}", "data.loader.max_bad_share=1",
                                             "training.steps=30", "checkpoint.every_steps=15"};
  const auto unbroken = run(4, "whole", settings), resumed = run(4, "again", settings, folder_ / "whole/checkpoints/step_0000015");
  for (std::size_t rank = 0; rank < 4; ++rank) expect_equal_weights(unbroken[rank], resumed[rank]);
}

TEST_F(RanksTest, RejectsDifferentConfigurations) {
  run_ranks(2, [&](const ProcessGroup& group) -> Tensors {
    const std::string lr = group.first() ? "optimizer.lr=0.1" : "optimizer.lr=0.2";
    const std::string error = error_of([&] { train(folder_ / "run", {lr}, "none", group); });
    EXPECT_EQ(error, group.first() ? "rank 0 stops because rank 1 failed at comparing configurations (its own "
                                     "message says why)"
                                   : "rank 1 has a different configuration than rank 0: optimizer.lr: 0.1 there, 0.2 here: "
                                     "start all ranks with the same file and overrides");
    return {};
  });
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

pid_t first_child(pid_t process) {
  const std::string id = std::to_string(process);
  pid_t child = 0;
  std::ifstream("/proc/" + id + "/task/" + id + "/children") >> child;
  return child;
}

/// Returns the end of a pipe whose other end nobody reads.
int broken_pipe() {
  int ends[2] = {-1, -1};
  if (::pipe(ends) == 0) ::close(ends[0]);
  return ends[1];
}

/// Runs the program trainer and writes its output to the file `output`, or to a broken pipe if `output` is empty. Returns its exit code.
/// Sends `signal` as soon as the file `until` is not empty: SIGKILL and SIGSTOP to the trainer's first worker, other signals to the
/// trainer.
int run_program(const std::vector<std::string>& arguments, const std::string& output, int signal = 0,
                const std::string& until = "") {
  const std::string program = std::string(TESSERA_BINARY_DIR) + "/bin/trainer";
  std::vector<char*> words{const_cast<char*>(program.c_str())};
  for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    const int handle = output.empty() ? broken_pipe() : ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    ::dup2(handle, 1);
    ::dup2(handle, 2);
    ::execv(program.c_str(), words.data());
    ::_exit(127);
  }
  int status = 0;
  while (signal != 0 && ::waitpid(child, &status, WNOHANG) == 0) {
    if (!fs::exists(until) || fs::file_size(until) == 0) {
      std::this_thread::yield();
      continue;
    }
    ::kill(signal == SIGKILL || signal == SIGSTOP ? first_child(child) : child, signal);
    signal = 0;
  }
  if (signal == 0) ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

class NprocTest : public RanksTest {
 protected:
  NprocTest() {
    std::string yaml = tiny_yaml();
    const std::string tokenizer = "{name: test_letters}";
    yaml.replace(yaml.find(tokenizer), tokenizer.size(),
                 "{name: clip-bpe, merges: " TESSERA_SOURCE_DIR
                 "/configs/vocabularies/clip-bpe/bpe_simple_vocab_16e6.txt.gz, context_length: 16}");
    std::ofstream(config_) << yaml;
  }
  std::vector<std::string> arguments(const std::string& run, const std::vector<std::string>& more) const {
    return with({"--config", config_, "--set", "run.folder=" + run}, more);
  }
  std::string text() const { return io::read_file(output_); }

  const std::string config_ = folder_ / "tiny.yaml", output_ = folder_ / "output.txt";
};

TEST_F(NprocTest, TwoProcessesMatchOne) {
  const std::string one = folder_ / "one", two = folder_ / "two";
  EXPECT_EQ(run_program(arguments(one, {}), output_), 0) << text();
  EXPECT_EQ(run_program(arguments(two, {"--nproc", "2", "--set", "data.loader.batch_size=4"}), output_), 0) << text();
  expect_same_curve(two, one, 2e-4, kSteadyGradients);
  EXPECT_TRUE(contains(text(), "x 2 ranks over gloo"));
}

TEST_F(NprocTest, SingleProcessUsesTheBackendInTheSettings) {
  const std::string run = folder_ / "run";
  EXPECT_EQ(run_program(arguments(run, {"--set", "distributed.backend=gloo"}), output_), 0) << text();
  EXPECT_TRUE(contains(text(), "run " + run + " on cpu over gloo"));
  EXPECT_FALSE(contains(text(), "without the others"));
}

TEST_F(NprocTest, ABrokenPipeOnItsOutputDoesNotEndARun) {
  const std::string one = folder_ / "one", two = folder_ / "two";
  EXPECT_EQ(run_program(arguments(one, {}), ""), 0);
  EXPECT_EQ(run_program(arguments(two, {"--nproc", "2", "--set", "data.loader.batch_size=4"}), ""), 0);
  for (const std::string& run : {one, two}) {
    EXPECT_TRUE(fs::exists(run + "/checkpoints/latest"));
    EXPECT_TRUE(contains(io::read_file(run + "/log.txt"), "finished 6 steps"));
  }
}

TEST_F(NprocTest, ForwardsASignalAndExitsWithItsCode) {
  const std::string run = folder_ / "run";
  const auto long_run =
      arguments(run, {"--nproc", "2", "--set", "training.steps=100000", "--set", "data.loader.batch_size=4"});
  EXPECT_EQ(run_program(long_run, output_, SIGTERM, run + "/metrics.jsonl"), 128 + SIGTERM) << text();
  EXPECT_TRUE(fs::exists(run + "/checkpoints/latest")) << text();
}

TEST_F(NprocTest, DeadRankStopsTheOthers) {
  if (!fs::exists("/proc/self/task/" + std::to_string(::getpid()) + "/children"))
    GTEST_SKIP() << "the kernel does not list child processes";
  const std::string run = folder_ / "run";
  const auto long_run =
      arguments(run, {"--nproc", "2", "--set", "training.steps=100000", "--set", "data.loader.batch_size=4"});
  EXPECT_EQ(run_program(long_run, output_, SIGKILL, run + "/metrics.jsonl"), 128 + SIGKILL) << text();
  EXPECT_TRUE(contains(text(), "trainer: rank 0 was killed by signal 9 (Killed); stopping the others"));
}

TEST_F(NprocTest, NamesASilentRankWithHostPhaseAndStep) {
  if (!fs::exists("/proc/self/task/" + std::to_string(::getpid()) + "/children"))
    GTEST_SKIP() << "the kernel does not list child processes";
  const std::string run = folder_ / "run";
  const auto long_run = arguments(run, {"--nproc", "2", "--set", "training.steps=100000", "--set",
                                        "data.loader.batch_size=4", "--set", "distributed.heartbeat=5"});
  EXPECT_EQ(run_program(long_run, output_, SIGSTOP, run + "/metrics.jsonl"), 1) << text();
  EXPECT_TRUE(contains(text(), "trainer rank 1: no sign of life for 5 s from rank 0 on "));
  EXPECT_TRUE(contains(text(), " of step "));
}

TEST_F(NprocTest, ReportsAnErrorOnce) {
  EXPECT_EQ(run_program(arguments(folder_ / "a", {"--nproc", "2", "--set", "optimizer.lrr=1"}), output_), 2);
  EXPECT_EQ(split(text(), '\n').size(), 2U) << text();  // one line, and an empty part after its end
  // Every rank fails while it builds the data.
  EXPECT_EQ(run_program(arguments(folder_ / "b", {"--nproc", "2", "--set", "data.loader.batch_size=21"}), output_), 2);
  EXPECT_TRUE(contains(text(), "fewer samples than one batch of 21 for each of 2 processes"));
}

// A source in which every fourth image is damaged, which only the rank that decodes it notices.
class Damaged : public IndexedSource {
 public:
  std::int64_t size() const override { return shapes_.size(); }
  Sample get(std::int64_t index) const override {
    Sample sample = shapes_.get(index);
    for (std::int64_t i = 0; i < std::ssize(sample.mask); ++i) sample.depth.push_back(1 + 0.01f * static_cast<float>((i * i + index) % 97));
    if (index % 4 == 1) sample.encoded = encode_png(std::exchange(sample.image, {}));
    if (index % 4 != 0) return sample;
    sample.image = {};
    sample.encoded = "not an image";
    return sample;
  }
  std::vector<std::string> class_names() const override { return shapes_.class_names(); }
  std::string describe() const override { return "damaged shapes"; }

 private:
  ShapesSource shapes_{[] {
    ShapesSettings settings;
    settings.size = 45;
    settings.image_size = 16;
    return settings;
  }()};
};

TEST_F(RanksTest, EvaluationOnAllRanksMatchesOneProcess) {
  sources().add<config::NoSettings>("test_damaged", "shapes with damaged images",
                                    [](const config::NoSettings&) { return std::make_shared<Damaged>(); });
  const std::vector<std::string> settings = {
      "training.steps=1", "evaluation.at_start=true", "evaluation.batch_size=4", "training.ema={decay: 0.5}", "evaluation.weights=ema",
      "evaluation.tasks=[{name: zero_shot, source: {name: test_damaged}}, {name: retrieval}, {name: retrieval, source: {name: test_damaged}}, "
      "{name: segmentation}, {name: segmentation, source: {name: test_damaged}}, {name: fgovd, source: {name: test_damaged}}, "
      "{name: depth_probe, source: {name: test_damaged}, train: {name: test_damaged}}, {name: segmentation_probe, train: {name: test_damaged}}, "
      "{name: hard_negatives, source: {name: test_damaged}}, {name: knn, train: {name: test_damaged}}, {name: validation_loss, batch_size: 8}]"};
  const auto results = [&](int ranks) {
    const std::string name = std::to_string(ranks);
    run(ranks, name, settings);
    auto file = nlohmann::json::parse(io::read_file(folder_ / (name + "/evaluation/step_0000000.json")));
    EXPECT_TRUE(file.at("failed").empty()) << file.at("failed").dump(1);
    for (auto& task : file.at("tasks"))
      for (const char* changing : {"seconds", "texts_per_second"}) task.erase(changing);
    return file.at("tasks");
  };
  const nlohmann::json alone = results(1);
  EXPECT_EQ(alone.at(0).at("samples"), 33);
  EXPECT_EQ(alone.at(0).at("skipped"), nlohmann::json({{"bad_image", 12}}));
  for (const int ranks : {2, 3}) {
    const nlohmann::json shared = results(ranks);
    EXPECT_EQ(shared, alone) << nlohmann::json::diff(alone, shared).dump(1);
  }
}

TEST_F(NprocTest, IsRejectedInsideALauncher) {
  ::setenv("WORLD_SIZE", "2", 1);
  EXPECT_EQ(run_program(arguments(folder_ / "a", {"--nproc", "2"}), output_), 2);
  EXPECT_TRUE(contains(text(), "leave one out"));
  EXPECT_EQ(run_program(arguments(folder_ / "a", {}), output_), 2);
  EXPECT_TRUE(contains(text(), "RANK is missing"));
  ::unsetenv("WORLD_SIZE");
}

TEST_F(RanksTest, TaskThatDoesNotFitItsDataStopsEveryRank) {
  const std::string folder = folder_ / "run";
  io::write_file(folder_ / "classes.csv", "filepath\ttitle\n" TESSERA_SOURCE_DIR "/docs/images/slots.png\ta slot\n");
  const auto ranks = run_ranks(2, [&](const ProcessGroup& group) {
    const std::string text = error_of([&] {
      train(folder, {"evaluation.tasks=[{name: knn, source: {name: csv, path: " + (folder_ / "classes.csv") + "}}]"},
            "none", group);
    });
    const bool named = text.find(group.first() ? "evaluation.tasks[0] (knn): no sample of csv " : "rank 0") !=
                       std::string::npos;
    return Tensors{{"named", at::full({1}, named, at::kBool)}};
  });
  for (const Tensors& rank : ranks) EXPECT_TRUE(rank.at("named").item<bool>());
}

}  // namespace
}  // namespace tessera
