#include "tests/support/program.h"

#include <filesystem>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"
#include <tessera/io/atomic_file.h>
#include <tessera/io/safetensors.h>
#include <tessera/models/dual_encoder.h>

namespace tessera::bench {
namespace {

std::string run(const std::string& arguments) {
  return output_of("tessera-bench " + arguments);
}

void expect_refused(const std::string& arguments, const std::string& text) {
  tessera::expect_refused("tessera-bench " + arguments, "tessera-bench: " + text);
}

class BenchProgram : public FolderTest {
 protected:
  /// Runs tessera-bench with --json. Returns the member `member` of the JSON file. `printed` receives the program's output.
  nlohmann::json measured(const std::string& arguments, const char* member, std::string* printed = nullptr) const {
    const std::string text = run(arguments + " --repeats 1 --json " + path("a.json"));
    if (printed != nullptr) *printed = text;
    return nlohmann::json::parse(io::read_file(path("a.json"))).at(member);
  }
};

TEST_F(BenchProgram, MistakesAreReportedInOneLineWithExitCodeTwo) {
  expect_refused("", "A subcommand is required (see --help)");
  expect_refused("loss --objectives sparcc",
                 "--objectives:1: objective: unknown objective sparcc: did you mean sparc?");
  expect_refused("loss --device tpu", "--device tpu: expected auto, cpu, cuda or cuda:N");
  expect_refused("loss --model no/such.yaml",
                 "no/such.yaml: no such configuration file in the working folder or in " TESSERA_SOURCE_DIR
                 "/configs; trainer --list-configs lists all");
  expect_refused("loss --plot no/such/plot.html", "--plot no/such/plot.html: there is no folder no/such");
  expect_refused("loss --plot plot.svg", "--plot plot.svg: the plot is a page: name a file that ends in .html");
  expect_refused("kernels --sparsify-group 4x4",
                 "--sparsify-group 4x4: expected sizes of at least 1 such as 64x55x196x512 (B, L, P, D)");
  expect_refused("kernels --slot-attention 4x4x4x4",
                 "--slot-attention 4x4x4x4: expected sizes of at least 1 such as 32x128x50x768x64 (B, L, N, d, D)");
  expect_refused("readouts --shapes 4x4", "--shapes 4x4: expected sizes of at least 1 such as 32x50x768 (B, N, d)");
  expect_refused("readouts --readouts spar", "--readouts:1: readout: unknown read-out spar: did you mean sparo?");
  for (const std::string value : {"0", "-1", "many"})
    expect_refused("loss --memory-limit " + value,
                   "--memory-limit: expected a number above 0, got " + value + " (see --help)");
  for (const std::string arguments : {"loss --batch-sizes 0", "loss --dtype float8", "loss --batchsizes 4", "kernels --json",
                                      "loss --memory-limit -1", "loss --repeats 0"}) {
    const std::string text = refusal_of("tessera-bench " + arguments);
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  }
}

TEST_F(BenchProgram, LossPrintsTablesAndWritesPlotAndJson) {
  std::string text;
  const nlohmann::json costs =
      measured("loss --objectives clip sparc --batch-sizes 4 2 --patches 4 --tokens 3 --width 8 --quiet --plot " + path("a.html"),
               "costs", &text);
  EXPECT_NE(text.find("B = 2 |"), std::string::npos) << text;
  EXPECT_LT(text.find("B = 2 |"), text.find("B = 4 |")) << "sizes must ascend";
  EXPECT_NE(text.find("SPARC over CLIP at B = 4"), std::string::npos) << text;
  EXPECT_TRUE(std::filesystem::exists(path("a.html")));
  EXPECT_EQ(costs.size(), 4u);
}

/// Writes configurations of a tiny model and runs `tessera-bench step` on them.
class StepProgram : public BenchProgram {
 protected:
  std::string configuration(const std::string& objective) const {
    return write(objective + ".yaml", R"(model:
  preprocessing: {image_size: 16}
  image: {encoder: {name: vit, patch_size: 8, width: 8, layers: 2, heads: 2, regions: {width: 5, first_block: 1}}}
  text: {encoder: {name: text_transformer, vocab_size: 20, context_length: 8, width: 8, layers: 1, heads: 2}}
objective: {name: )" + objective + "}\ntraining: {clip_norm: 1}\n");
  }
  nlohmann::json steps(const std::string& arguments, std::string* printed = nullptr) const {
    return measured("step " + arguments + " --batch-size 4 --quiet", "steps", printed);
  }
};

TEST_F(StepProgram, ReportsTheTimeOfPhasesAndOperators) {
  const std::string config = configuration("clip");
  const nlohmann::json step = steps(config + " --phases --operators 3 --trace " + path("trace.json"))[0];
  for (const char* phase : {"image tower", "text tower", "objective", "backward", "clipping", "update"})
    EXPECT_GT(step["phases"][phase].get<double>(), 0) << phase;
  EXPECT_FALSE(step["phases"].contains("reduce")) << "one process has no gradients to reduce";
  EXPECT_EQ(step["operators"].size(), 3u);
  EXPECT_TRUE(std::filesystem::exists(path("trace.json")));
  EXPECT_TRUE(steps(config + " --phases --backend gloo")[0]["phases"].contains("reduce"));
}

TEST_F(StepProgram, ShortCaptionsTakeFewerFlops) {
  const std::string config = configuration("clip");
  const double full = steps(config)[0]["flops"], two = steps(config + " --caption-lengths 2")[0]["flops"];
  const double drawn = steps(config + " --caption-lengths 1:7")[0]["flops"];
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
  const std::string config = configuration("clip"), file = path("batch.safetensors");
  at::manual_seed(1);
  std::map<std::string, at::Tensor> batch{{"image", at::randn({4, 3, 16, 16})},
                                          {"text", at::randint(20, {4, 8}, at::kLong)},
                                          {"lengths", at::tensor({8, 2, 5, 1}, at::kLong)}};
  io::save_safetensors(file, batch);
  const auto loss = [&](const std::string& arguments) {
    return std::stod(run("step " + config + " --batch-size 4 --on-demand " + arguments + " < /dev/null"));
  };
  DualEncoder model(load_model_settings(config));
  const std::string weights = "--weights " + path("weights.safetensors"), both = weights + " --batch " + file;
  io::save_safetensors(path("weights.safetensors"), model.state_dict());
  const double first = loss(both);
  EXPECT_NE(first, loss("--batch " + file)) << "different weights";
  EXPECT_NE(first, loss(weights)) << "a different batch";
  batch["text"][1].slice(0, 2).fill_(19);
  io::save_safetensors(file, batch);
  EXPECT_EQ(loss(both), first) << "ids after the end of a text must not be read";
  batch.erase("lengths");
  io::save_safetensors(file, batch);
  expect_refused("step " + config + " --batch-size 4 --batch " + file,
                 file + ": no tensor named lengths: a batch has image, text and lengths");
}

TEST_F(StepProgram, MeasuresViewsTogetherAndOneByOne) {
  std::string text;
  const nlohmann::json rows = steps(configuration("clip") + " " + configuration("pyramidclip"), &text);
  EXPECT_NE(text.find("pyramidclip.yaml, views one by one |"), std::string::npos) << text;
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_GT(rows[1]["flops"], 2 * rows[0]["flops"].get<double>()) << "two crops, three texts and regions";
  EXPECT_EQ(rows[2]["flops"], rows[1]["flops"]);
  EXPECT_EQ(rows[1]["variant"], "");
  EXPECT_EQ(rows[2]["variant"], "views one by one");
  for (const auto& step : rows) EXPECT_GT(step["mfu"].get<double>(), 0);
}

TEST_F(BenchProgram, AStepWithATeacherAndSmallCropsIsMeasured) {
  const auto configuration = [&](const std::string& name, const std::string& more) {
    return write(name,
        "model:\n  preprocessing: {image_size: 32}\n"
        "  image: {encoder: {name: vit, patch_size: 8, width: 8, layers: 1, heads: 1}, projection: {name: linear, embed_dim: 4}}\n"
        "  text: {encoder: {name: text_transformer, vocab_size: 9, context_length: 6, width: 8, layers: 1, heads: 1}, projection: "
        "{name: linear, embed_dim: 4}}\n" + more);
  };
  const std::string dino = "objective: {name: dino, local_crops: 2, out_dim: 16, hidden_dim: 8, bottleneck_dim: 4}\n";
  const std::string views = "data: {loader: {views: {global: {count: 2}, local: {count: 2, image_size: ";
  const std::string plain = configuration("plain.yaml", ""), large = configuration("large.yaml", dino + views + "32}}}}\n"),
                    small = configuration("small.yaml", dino + views + "16}}}}\n");
  std::map<std::string, nlohmann::json> steps;
  const nlohmann::json rows = measured("step " + plain + " " + large + " " + small + " --phases --batch-size 2 --quiet", "steps");
  for (const auto& step : rows)
    if (step["variant"] == "") steps[step["configuration"]] = step;
  EXPECT_FALSE(steps.at(plain)["phases"].contains("teacher"));
  EXPECT_TRUE(steps.at(large)["phases"].contains("teacher"));
  EXPECT_LT(steps.at(small)["flops"], steps.at(large)["flops"]) << "crops must have the size that the loader settings state";
}

TEST_F(BenchProgram, ReadoutsPrintATableWithTheBlockFirst) {
  std::string text;
  const auto parts =
      measured("readouts --readouts '{name: sparo, slots: 2}' gap --shapes 2x5x8 3x4x8 --quiet", "parts", &text);
  EXPECT_NE(text.find("| transformer block"), std::string::npos) << text;
  EXPECT_NE(text.find("| {name: sparo, slots: 2}"), std::string::npos) << text;
  ASSERT_EQ(parts.size(), 6u);
  EXPECT_EQ(parts[0]["name"], "transformer block");
  EXPECT_EQ(parts[3]["name"], "transformer block") << "the row of the second shape";
  EXPECT_EQ(parts[1]["parameters"], 2 * 64 + 2 * 64 * 8 + 2 * 64 + 64 * 64 + 64) << "queries, keys, projection";
  for (const auto& part : parts) {
    EXPECT_GT(part["seconds"], 0);
    EXPECT_GT(part["peak_bytes"], 0);
  }
  EXPECT_EQ(parts[2]["flops"], 0) << "gap";
}

TEST_F(BenchProgram, OptimizerPrintsATableAndMeasuresStepsOnDemand) {
  const std::string file = write("tiny.yaml", R"(model:
  preprocessing: {image_size: 16}
  image: {encoder: {name: vit, patch_size: 8, width: 8, layers: 1, heads: 1}, projection: {name: linear, embed_dim: 4}}
  text: {encoder: {name: text_transformer, vocab_size: 9, width: 8, layers: 1, heads: 1}, projection: {name: linear, embed_dim: 4}}
)");
  std::string table;
  EXPECT_EQ(measured("optimizer --model " + file, "optimizers", &table).size(), 3u);
  EXPECT_NE(table.find("| adamw "), std::string::npos) << table;
  const std::string turns = run("optimizer --on-demand --model " + file + " < " + file);
  EXPECT_EQ(std::count(turns.begin(), turns.end(), '\n'), 5) << turns;  // one line about the parameters and four lines about steps
}

TEST_F(BenchProgram, EfficiencyComparesConfigurationsInATable) {
  const std::string image =
      "model:\n  preprocessing: {image_size: 16}\n"
      "  image: {encoder: {name: vit, patch_size: 8, width: 8, layers: 1, heads: 1}, projection: {name: linear, embed_dim: 4}}\n";
  const std::string pair = write("pair.yaml", image + "  text: {encoder: {name: text_transformer, vocab_size: 9, context_length: 6, "
                                                      "width: 8, layers: 1, heads: 1}, projection: {name: linear, embed_dim: 4}}\n");
  const std::string alone = write("alone.yaml", image + "  text: null\nobjective: {name: dino, local_crops: 2, out_dim: 16, "
                                                        "hidden_dim: 8, bottleneck_dim: 4}\n");
  std::string text;
  const auto models = measured("efficiency " + pair + " " + alone + " --batch 2 --quiet", "models", &text);
  EXPECT_NE(text.find("| configuration"), std::string::npos) << text;
  ASSERT_EQ(models.size(), 2u);
  EXPECT_EQ(models[0]["image_parameters"], models[1]["image_parameters"]);
  EXPECT_TRUE(models[1]["text"].is_null());
  EXPECT_FALSE(models[1]["training"].is_null()) << "a step that includes the teacher";
  EXPECT_EQ(models[0]["image"]["flops"], models[1]["image"]["flops"]) << "the same tower";
  // A backward pass takes about twice the FLOPs of a forward pass. So a step takes about three times the FLOPs of the two towers' forward
  // passes.
  const double forward = double(models[0]["image"]["flops"]) + double(models[0]["text"]["flops"]);
  EXPECT_GT(double(models[0]["training"]["flops"]), 2.5 * forward);
  for (const char* part : {"image", "text", "training"}) {
    EXPECT_GT(models[0][part]["samples_per_second"], 0) << part;
    EXPECT_GT(models[0][part]["peak_bytes"], models[0]["parameters"].get<double>() * 4) << part << ": weights included";
  }
  expect_refused("efficiency no/such.yaml",
                 "no/such.yaml: no such configuration file in the working folder or in " TESSERA_SOURCE_DIR
                 "/configs; trainer --list-configs lists all");
}

}  // namespace
}  // namespace tessera::bench
