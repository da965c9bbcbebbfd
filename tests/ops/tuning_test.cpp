#include "src/ops/tuning.h"

#include <filesystem>
#include <fstream>

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"

namespace tessera {
namespace {

using kernels::Pass;

constexpr const char* kGpu = "NVIDIA H100 80GB HBM3";

TuningTable example() {
  TuningTable table;
  table.gpu = kGpu;
  table.libraries = {{"torch", "2.11.0"}, {"cublas", "130100"}};
  table.choices[{"sparsify_group", Pass::kForward, at::kBFloat16, {64, 208}}] = {"80x256/128", "", {{"80x256/128", 140.5}, {"rule", 150}}};
  table.choices[{"linear", Pass::kBackward, at::kFloat, {512, 768, 768}}] = {"algorithm 7", "cublas", {}};
  return table;
}

class Tuning : public testing::Test {
 protected:
  std::string file = testing::TempDir() + "/tuning.json";

  void write(const std::string& text) const { std::ofstream(file) << text; }
  /// Returns the message for the example's file in which `from` is replaced by `to`, without the file's name and the way out.
  std::string mistake(const std::string& from, const std::string& to) const {
    std::string text = to_json(example());
    const std::size_t place = text.find(from);
    EXPECT_NE(place, std::string::npos) << from;
    write(text.replace(place, from.size(), to));
    const std::string message = error_of([&] { read_tuning_table(file); });
    const std::string end = ": write the table anew with tessera-bench tune --device cuda --json FILE";
    EXPECT_TRUE(message.starts_with(file + ": ") && message.ends_with(end)) << message;
    return message.substr(file.size() + 2, message.size() - file.size() - 2 - end.size());
  }
};

TEST_F(Tuning, ATableIsReadAsItWasWritten) {
  write(to_json(example()));
  const TuningTable table = read_tuning_table(file);
  EXPECT_EQ(table.file, file);
  EXPECT_EQ(to_json(table), to_json(example()));
  EXPECT_EQ(table.digest(), example().digest());
  EXPECT_EQ(table.choices.at({"sparsify_group", Pass::kForward, at::kBFloat16, {64, 208}}).configuration, "80x256/128");
}

TEST_F(Tuning, TheDigestDependsOnTheChoicesAlone) {
  TuningTable table = example();
  EXPECT_EQ(table.digest().size(), 16u);
  EXPECT_EQ(TuningTable().digest(), "built-in");
  table.file = "elsewhere.json";
  table.choices.begin()->second.microseconds["algorithm 8"] = 3;
  EXPECT_EQ(table.digest(), example().digest());
  table.choices.begin()->second.configuration = "algorithm 8";
  EXPECT_NE(table.digest(), example().digest());
  TuningTable other_shape = example();
  auto node = other_shape.choices.extract(other_shape.choices.begin());
  node.key().shape[0] = 513;
  other_shape.choices.insert(std::move(node));
  EXPECT_NE(other_shape.digest(), example().digest());
}

TEST_F(Tuning, AMistakeNamesTheFileAndTheKey) {
  EXPECT_EQ(mistake("\"gpu\"", "\"GPU\""), "gpu: missing, expected a text");
  EXPECT_EQ(mistake("\"backward\"", "\"both\""), "choices[0].pass: expected one of forward, backward, got both");
  EXPECT_EQ(mistake("\"bfloat16\"", "\"int8\""), "choices[1].type: expected one of float32, bfloat16, float16, got int8");
  EXPECT_EQ(mistake("\"algorithm 7\"", "7"), "choices[0].configuration: expected a text, got 7");
  EXPECT_EQ(mistake("512", "5.5"), "choices[0].shape: expected a list of integers");
  EXPECT_EQ(mistake("\"cublas\",", "\"cudnn\","), "choices[0].library: libraries has no version of cudnn");
  EXPECT_EQ(mistake("140.5", "\"fast\""), "choices[1].microseconds.80x256/128: unexpected value \"fast\"");
  EXPECT_EQ(mistake("{", "["), "the file: is not a JSON object");
  EXPECT_EQ(error_of([] { read_tuning_table("/no/such.json"); }),
            "/no/such.json: cannot read this tuning table (TESSERA_TUNING names the file): unset TESSERA_TUNING or name another file");
}

TEST_F(Tuning, ATableForAnotherGpuIsRefused) {
  write(to_json(example()));
  EXPECT_EQ(error_of([&] { find_tuning_table(file, "NVIDIA L4", example().libraries); }),
            file + ": gpu: the table is for NVIDIA H100 80GB HBM3, but this machine has NVIDIA L4: write the table anew with tessera-bench "
                   "tune --device cuda --json FILE");
  EXPECT_TRUE(find_tuning_table("", "NVIDIA L4", {}).choices.empty()) << "no table ships for this GPU";
}

TEST_F(Tuning, ChoicesForAnotherVersionOfTheirLibraryAreLeftOut) {
  write(to_json(example()));
  EXPECT_EQ(find_tuning_table(file, kGpu, example().libraries).choices.size(), 2u);
  // The version of LibTorch does not matter for choices that belong to Tessera.
  const TuningTable table = find_tuning_table(file, kGpu, {{"torch", "2.12.0"}, {"cublas", "130200"}});
  EXPECT_EQ(table.choices.size(), 1u);
  EXPECT_EQ(table.outdated, "1 choices are for cublas 130100, but 130200 is loaded");
  EXPECT_NE(table.digest(), example().digest());
}

TEST_F(Tuning, AForcedConfigurationIsUsedForItsKeyAlone) {
  const TuningKey key = example().choices.begin()->first;
  TuningKey other = key;
  other.pass = Pass::kForward;
  const auto unforced = [](const TuningKey& of) { return at::hasCUDA() ? nullptr : tuned_configuration(of); };  // a GPU may have a table
  {
    const ForcedConfiguration forced(key, "algorithm 9");
    EXPECT_STREQ(tuned_configuration(key), "algorithm 9");
    EXPECT_EQ(unforced(other), nullptr);
  }
  EXPECT_EQ(unforced(key), nullptr);
}

TEST_F(Tuning, TheFileOfAGpuHasItsName) {
  EXPECT_EQ(tuning_file_name(kGpu), "nvidia-h100-80gb-hbm3.json");
  EXPECT_EQ(tuning_file_name("NVIDIA A100-SXM4-80GB"), "nvidia-a100-sxm4-80gb.json");
}

TEST_F(Tuning, TheVersionOfLibTorchIsKnown) {
  EXPECT_TRUE(library_versions().at("torch").starts_with("2."));
}

}  // namespace
}  // namespace tessera
