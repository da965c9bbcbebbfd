#include "tests/support/program.h"

#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tessera/io/safetensors.h>
#include <tessera/models/dual_encoder.h>

namespace tessera::bench {
namespace {

Answer run(const std::string& arguments) {
  return answer_of("tessera-bench " + arguments);
}

void expect_refused(const std::string& arguments, const std::string& text) {
  const Answer ran = run(arguments);
  EXPECT_EQ(ran.code, 2) << arguments;
  EXPECT_EQ(ran.text, "tessera-bench: " + text + "\n") << arguments;
}

TEST(BenchProgram, MistakesAreReportedInOneLineWithExitCodeTwo) {
  expect_refused("", "A subcommand is required (see --help)");
  expect_refused("loss --objectives sparcc",
                 "--objectives:1: objective: unknown objective sparcc: did you mean sparc?");
  expect_refused("loss --device tpu", "--device tpu: expected cpu, cuda or cuda:N");
  expect_refused("loss --model no/such.yaml",
                 "no/such.yaml: no such configuration file in the working folder or in " TESSERA_SOURCE_DIR
                 "/configs; trainer --list-configs lists all");
  expect_refused("loss --plot no/such/plot.svg", "--plot no/such/plot.svg: there is no folder no/such");
  expect_refused("kernels --sparsify-group 4x4",
                 "--sparsify-group 4x4: expected sizes of at least 1 such as 64x55x196x512 (B, L, P, D)");
  expect_refused("kernels --slot-attention 4x4x4x4",
                 "--slot-attention 4x4x4x4: expected sizes of at least 1 such as 32x128x50x768x64 (B, L, N, d, D)");
  expect_refused("readouts --shapes 4x4", "--shapes 4x4: expected sizes of at least 1 such as 32x50x768 (B, N, d)");
  expect_refused("readouts --readouts spar", "--readouts:1: readout: unknown read-out spar: did you mean sparo?");
  for (const std::string value : {"0", "-1", "many"})
    expect_refused("loss --memory-limit " + value,
                   "--memory-limit: expected a number above 0, got " + value + " (see --help)");
  for (const char* arguments : {"loss --batch-sizes 0", "loss --dtype float8", "loss --batchsizes 4", "kernels --json",
                                "loss --memory-limit -1", "loss --repeats 0"}) {
    const Answer ran = run(arguments);
    EXPECT_EQ(ran.code, 2) << arguments;
    EXPECT_EQ(std::count(ran.text.begin(), ran.text.end(), '\n'), 1) << ran.text;
  }
}

TEST(BenchProgram, HelpListsTheOptions) {
  const Answer ran = run("loss --help");
  EXPECT_EQ(ran.code, 0);
  for (const char* part : {"--objectives", "--batch-sizes", "--memory-limit", "--plot", "FLOPs: 2 per multiply-add"})
    EXPECT_NE(ran.text.find(part), std::string::npos) << part;
  EXPECT_EQ(run("--help").code, 0);
}

TEST(BenchProgram, LossPrintsTablesAndWritesPlotAndJson) {
  const std::string folder = std::filesystem::temp_directory_path() / ("tessera_bench_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const Answer ran =
      run("loss --objectives clip sparc --batch-sizes 4 2 --patches 4 --tokens 3 --width 8 --repeats 1 "
          "--quiet --plot " +
          folder + "/a.svg --json " + folder + "/a.json");
  EXPECT_EQ(ran.code, 0) << ran.text;
  EXPECT_NE(ran.text.find("B = 2 |"), std::string::npos) << ran.text;
  EXPECT_LT(ran.text.find("B = 2 |"), ran.text.find("B = 4 |")) << "sizes must ascend";
  EXPECT_NE(ran.text.find("SPARC over CLIP at B = 4"), std::string::npos) << ran.text;
  EXPECT_TRUE(std::filesystem::exists(folder + "/a.svg"));
  std::ifstream json(folder + "/a.json");
  EXPECT_EQ(nlohmann::json::parse(json)["costs"].size(), 4u);
  std::filesystem::remove_all(folder);
}

/// Writes configurations of a tiny model and runs `tessera-bench step` on them.
class StepProgram : public testing::Test {
 protected:
  StepProgram() : folder(std::filesystem::temp_directory_path() / ("tessera_bench_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder);
  }
  ~StepProgram() override { std::filesystem::remove_all(folder); }
  std::string write(const std::string& name, const std::string& objective) const {
    std::ofstream(folder + "/" + name) << R"(model:
  preprocessing: {image_size: 16}
  image: {encoder: {name: vit, patch_size: 8, width: 8, layers: 2, heads: 2, regions: {width: 5, first_block: 1}}}
  text: {encoder: {name: text_transformer, vocab_size: 20, context_length: 8, width: 8, layers: 1, heads: 2}}
objective: {name: )" << objective << "}\ntraining: {clip_norm: 1}\n";
    return folder + "/" + name;
  }
  nlohmann::json measured(const std::string& arguments) const {
    const Answer ran = run("step " + arguments + " --batch-size 4 --repeats 1 --quiet --json " + folder + "/a.json");
    EXPECT_EQ(ran.code, 0) << ran.text;
    std::ifstream file(folder + "/a.json");
    return nlohmann::json::parse(file)["steps"];
  }
  std::string folder;
};

TEST_F(StepProgram, ReportsTheTimeOfPhasesAndOperators) {
  const std::string config = write("clip.yaml", "clip");
  const nlohmann::json step = measured(config + " --phases --operators 3 --trace " + folder + "/trace.json")[0];
  for (const char* phase : {"image tower", "text tower", "objective", "backward", "clipping", "update"})
    EXPECT_GT(step["phases"][phase].get<double>(), 0) << phase;
  EXPECT_FALSE(step["phases"].contains("reduce")) << "one process has no gradients to reduce";
  EXPECT_EQ(step["operators"].size(), 3u);
  EXPECT_TRUE(std::filesystem::exists(folder + "/trace.json"));
  EXPECT_TRUE(measured(config + " --phases --backend gloo")[0]["phases"].contains("reduce"));
}

TEST_F(StepProgram, ShortCaptionsTakeFewerFlops) {
  const std::string config = write("clip.yaml", "clip");
  const double full = measured(config)[0]["flops"], two = measured(config + " --caption-lengths 2")[0]["flops"];
  const double drawn = measured(config + " --caption-lengths 1:7")[0]["flops"];
  EXPECT_LT(two, drawn);
  EXPECT_LT(drawn, full);
  for (const std::string lengths : {"0", "9", "5:3", "long"})
    expect_refused("step " + config + " --caption-lengths " + lengths,
                   "--caption-lengths " + lengths +
                       ": expected full, coco, or numbers of tokens between 1 and 8 such as 12 or 9:20");
  expect_refused("step " + config + " --recorded",
                 config + ": a recorded step needs a GPU, backend auto, and an objective that is the same in each step");
}

TEST_F(StepProgram, TakesWeightsAndABatchFromFiles) {
  const std::string config = write("clip.yaml", "clip"), file = folder + "/batch.safetensors";
  at::manual_seed(1);
  std::map<std::string, at::Tensor> batch{{"image", at::randn({4, 3, 16, 16})},
                                          {"text", at::randint(20, {4, 8}, at::kLong)},
                                          {"lengths", at::tensor({8, 2, 5, 1}, at::kLong)}};
  io::save_safetensors(file, batch);
  const auto loss = [&](const std::string& arguments) {
    const Answer ran = answer_of("tessera-bench step " + config + " --batch-size 4 --on-demand " + arguments +
                                 " < /dev/null");
    EXPECT_EQ(ran.code, 0) << ran.text;
    return std::stod(ran.text);
  };
  DualEncoder model(load_model_settings(config));
  io::save_safetensors(folder + "/weights.safetensors", model.state_dict());
  const std::string both = "--weights " + folder + "/weights.safetensors --batch " + file;
  const double first = loss(both);
  EXPECT_NE(first, loss("--batch " + file)) << "different weights";
  EXPECT_NE(first, loss("--weights " + folder + "/weights.safetensors")) << "a different batch";
  batch["text"][1].slice(0, 2).fill_(19);
  io::save_safetensors(file, batch);
  EXPECT_EQ(loss(both), first) << "ids after the end of a text must not be read";
  batch.erase("lengths");
  io::save_safetensors(file, batch);
  expect_refused("step " + config + " --batch-size 4 --batch " + file,
                 file + ": no tensor named lengths: a batch has image, text and lengths");
}

TEST_F(StepProgram, MeasuresViewsTogetherAndOneByOne) {
  const Answer ran = run("step " + write("clip.yaml", "clip") + " " + write("pyramidclip.yaml", "pyramidclip") +
                         " --batch-size 4 --repeats 1 --quiet --json " + folder + "/a.json");
  ASSERT_EQ(ran.code, 0) << ran.text;
  EXPECT_NE(ran.text.find("pyramidclip.yaml, views one by one |"), std::string::npos) << ran.text;
  std::ifstream file(folder + "/a.json");
  const nlohmann::json steps = nlohmann::json::parse(file)["steps"];
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_GT(steps[1]["flops"], 2 * steps[0]["flops"].get<double>()) << "two crops, three texts and regions";
  EXPECT_EQ(steps[2]["flops"], steps[1]["flops"]);
  EXPECT_EQ(steps[1]["variant"], "");
  EXPECT_EQ(steps[2]["variant"], "views one by one");
  for (const auto& step : steps) EXPECT_GT(step["mfu"].get<double>(), 0);
}

TEST(BenchProgram, AStepWithATeacherAndSmallCropsIsMeasured) {
  const std::string folder = std::filesystem::temp_directory_path() / ("tessera_bench_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const auto write = [&](const std::string& name, const std::string& more) {
    std::ofstream(folder + "/" + name) <<
        "model:\n  preprocessing: {image_size: 32}\n"
        "  image: {encoder: {name: vit, patch_size: 8, width: 8, layers: 1, heads: 1}, projection: {name: linear, embed_dim: 4}}\n"
        "  text: {encoder: {name: text_transformer, vocab_size: 9, context_length: 6, width: 8, layers: 1, heads: 1}, projection: "
        "{name: linear, embed_dim: 4}}\n" << more;
    return folder + "/" + name;
  };
  const std::string dino = "objective: {name: dino, local_crops: 2, out_dim: 16, hidden_dim: 8, bottleneck_dim: 4}\n";
  const std::string views = "data: {loader: {views: {global: {count: 2}, local: {count: 2, image_size: ";
  const std::string plain = write("plain.yaml", "");
  const std::string large = write("large.yaml", dino + views + "32}}}}\n"), small = write("small.yaml", dino + views + "16}}}}\n");
  const Answer ran = run("step " + plain + " " + large + " " + small + " --phases --batch-size 2 --repeats 1 --quiet --json " + folder + "/a.json");
  EXPECT_EQ(ran.code, 0) << ran.text;
  std::ifstream file(folder + "/a.json");
  std::map<std::string, nlohmann::json> steps;
  const nlohmann::json measured = nlohmann::json::parse(file)["steps"];
  for (const auto& step : measured)
    if (step["variant"] == "") steps[step["configuration"]] = step;
  EXPECT_FALSE(steps.at(plain)["phases"].contains("teacher"));
  EXPECT_TRUE(steps.at(large)["phases"].contains("teacher"));
  EXPECT_LT(steps.at(small)["flops"], steps.at(large)["flops"]) << "crops must have the size that the loader settings state";
  std::filesystem::remove_all(folder);
}

TEST(BenchProgram, ReadoutsPrintATableWithTheBlockFirst) {
  const std::string folder = std::filesystem::temp_directory_path() / ("tessera_bench_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const Answer ran =
      run("readouts --readouts '{name: sparo, slots: 2}' gap --shapes 2x5x8 3x4x8 --repeats 1 --quiet --json " +
          folder + "/a.json");
  EXPECT_EQ(ran.code, 0) << ran.text;
  EXPECT_NE(ran.text.find("| transformer block"), std::string::npos) << ran.text;
  EXPECT_NE(ran.text.find("| {name: sparo, slots: 2}"), std::string::npos) << ran.text;
  std::ifstream file(folder + "/a.json");
  const auto parts = nlohmann::json::parse(file)["parts"];
  ASSERT_EQ(parts.size(), 6u);
  EXPECT_EQ(parts[0]["name"], "transformer block");
  EXPECT_EQ(parts[3]["name"], "transformer block") << "the row of the second shape";
  EXPECT_EQ(parts[1]["parameters"], 2 * 64 + 2 * 64 * 8 + 2 * 64 + 64 * 64 + 64) << "queries, keys, projection";
  for (const auto& part : parts) {
    EXPECT_GT(part["seconds"], 0);
    EXPECT_GT(part["peak_bytes"], 0);
  }
  EXPECT_EQ(parts[2]["flops"], 0) << "gap";
  std::filesystem::remove_all(folder);
}

TEST(BenchProgram, OptimizerPrintsATableAndMeasuresStepsOnDemand) {
  const std::string folder = std::filesystem::temp_directory_path() / ("tessera_bench_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/tiny.yaml") << R"(model:
  preprocessing: {image_size: 16}
  image: {encoder: {name: vit, patch_size: 8, width: 8, layers: 1, heads: 1}, projection: {name: linear, embed_dim: 4}}
  text: {encoder: {name: text_transformer, vocab_size: 9, width: 8, layers: 1, heads: 1}, projection: {name: linear, embed_dim: 4}}
)";
  const Answer table = run("optimizer --repeats 1 --model " + folder + "/tiny.yaml --json " + folder + "/a.json");
  EXPECT_EQ(table.code, 0) << table.text;
  EXPECT_NE(table.text.find("| adamw "), std::string::npos) << table.text;
  std::ifstream json(folder + "/a.json");
  EXPECT_EQ(nlohmann::json::parse(json)["optimizers"].size(), 3u);
  const Answer turns = run("optimizer --on-demand --model " + folder + "/tiny.yaml < " + folder + "/tiny.yaml");
  EXPECT_EQ(turns.code, 0) << turns.text;
  EXPECT_EQ(std::count(turns.text.begin(), turns.text.end(), '\n'), 5) << turns.text;  // one line of parameters and four of steps
  std::filesystem::remove_all(folder);
}

TEST(BenchProgram, EfficiencyComparesConfigurationsInATable) {
  const std::string folder = std::filesystem::temp_directory_path() / ("tessera_bench_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const std::string image =
      "model:\n  preprocessing: {image_size: 16}\n"
      "  image: {encoder: {name: vit, patch_size: 8, width: 8, layers: 1, heads: 1}, projection: {name: linear, embed_dim: 4}}\n";
  std::ofstream(folder + "/pair.yaml") << image << "  text: {encoder: {name: text_transformer, vocab_size: 9, context_length: 6, "
                                                   "width: 8, layers: 1, heads: 1}, projection: {name: linear, embed_dim: 4}}\n";
  std::ofstream(folder + "/alone.yaml")
      << image << "  text: null\nobjective: {name: dino, local_crops: 2, out_dim: 16, hidden_dim: 8, bottleneck_dim: 4}\n";
  const std::string both = folder + "/pair.yaml " + folder + "/alone.yaml";
  const Answer ran = run("efficiency " + both + " --batch 2 --repeats 1 --quiet --json " + folder + "/a.json");
  EXPECT_EQ(ran.code, 0) << ran.text;
  EXPECT_NE(ran.text.find("| configuration"), std::string::npos) << ran.text;
  std::ifstream file(folder + "/a.json");
  const auto models = nlohmann::json::parse(file)["models"];
  ASSERT_EQ(models.size(), 2u);
  EXPECT_EQ(models[0]["image_parameters"], models[1]["image_parameters"]);
  EXPECT_TRUE(models[1]["text"].is_null());
  EXPECT_FALSE(models[1]["training"].is_null()) << "a step that includes the teacher";
  EXPECT_EQ(models[0]["image"]["flops"], models[1]["image"]["flops"]) << "the same tower";
  // A backward pass takes about twice the FLOPs of a forward pass, so a step takes about three times those of both forward passes.
  const double forward = double(models[0]["image"]["flops"]) + double(models[0]["text"]["flops"]);
  EXPECT_GT(double(models[0]["training"]["flops"]), 2.5 * forward);
  for (const char* part : {"image", "text", "training"}) {
    EXPECT_GT(models[0][part]["samples_per_second"], 0) << part;
    EXPECT_GT(models[0][part]["peak_bytes"], models[0]["parameters"].get<double>() * 4) << part << ": weights included";
  }
  expect_refused("efficiency no/such.yaml",
                 "no/such.yaml: no such configuration file in the working folder or in " TESSERA_SOURCE_DIR
                 "/configs; trainer --list-configs lists all");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tessera::bench
