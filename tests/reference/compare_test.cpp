#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/reference/compare.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include <tessera/io/safetensors.h>

namespace tessera::probe {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
at::Tensor number(double value) {
  return at::scalar_tensor(value, at::kFloat);
}

constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(Compare, BoundGrowsWithTheReference) {
  const at::Tensor theirs = at::tensor({0.0, -9.0});
  EXPECT_DOUBLE_EQ(compare("x", theirs, theirs, 1e-3).bound, 1e-2);
  EXPECT_TRUE(compare("x", theirs + 0.009, theirs, 1e-3).agrees());
  EXPECT_FALSE(compare("x", theirs + 0.011, theirs, 1e-3).agrees());
}

TEST(Compare, NanIsEqualOnlyIfTheReferenceHasIt) {
  const at::Tensor one = at::tensor({1.0, 2.0});
  EXPECT_EQ(compare("x", at::tensor({1.0, kNaN}), one, 1).problem, "NaN where the reference has none");
  EXPECT_TRUE(compare("x", at::tensor({1.0, kNaN}), at::tensor({1.0, kNaN}), 1e-5).agrees());
  EXPECT_FALSE(compare("x", one, at::tensor({1.0, kNaN}), 1).agrees());
  EXPECT_FALSE(compare("x", at::tensor({1.0, kInf}), one, 1).agrees());
  EXPECT_TRUE(compare("x", at::tensor({1.0, kInf}), at::tensor({1.0, kInf}), 1e-5).agrees());
  EXPECT_FALSE(compare("x", at::tensor({1.0, -kInf}), at::tensor({1.0, kInf}), 1).agrees());
}

TEST(Compare, WholeNumbersAndBoolsMustBeEqual) {
  EXPECT_TRUE(compare("x", at::tensor({1000000, 2}), at::tensor({1000000, 2}), 1).agrees());
  EXPECT_FALSE(compare("x", at::tensor({1000001, 2}), at::tensor({1000000, 2}), 1).agrees());
  EXPECT_FALSE(compare("x", at::tensor({1, 1}).to(at::kBool), at::tensor({1, 0}).to(at::kBool), 1).agrees());
}

TEST(Compare, UndefinedGradientsCountAsZeros) {
  EXPECT_TRUE(compare("x", {}, at::zeros({2}), 1e-5).agrees());
  EXPECT_FALSE(compare("x", {}, at::ones({2}), 1e-5).agrees());
}

TEST(Compare, ShapesMustMatch) {
  EXPECT_EQ(compare("x", at::zeros({1}), at::zeros({}), 1).problem, "shape is [1], expected []");
  EXPECT_TRUE(compare("x", at::zeros({0, 2}), at::zeros({0, 2}), 1).agrees());
}

// A minimal module: y = w * x, loss = sum(y), count = the number of elements.
Outputs scale(Run& run) {
  const at::Tensor y = run.parameter("w") * run.input("x");
  return {{"y", y}, {"loss", y.sum()}, {"count", at::scalar_tensor(y.numel(), at::kLong)}};
}

class ProbeCases : public FolderTest {
 protected:
  void SetUp() override {
    tensors_ = {{"in.x", at::tensor({1.0F, 2.0F})},
                {"param.w", number(3.0)},
                {"out.y", at::tensor({3.0F, 6.0F})},
                {"out.loss", number(9.0)},
                {"out.count", at::scalar_tensor(2, at::kLong)},
                {"grad.in.x", at::tensor({3.0F, 3.0F})},
                {"grad.param.w", number(3.0)},
                {"shard.loss", at::ones({2})}};
    metadata_ = {{"module", "scale"}, {"settings", "{}"}, {"rtol", "1e-5"}, {"note", "a note"}};
    runners_.add("scale", scale);
  }

  CaseReport run() {
    io::save_safetensors(path_, tensors_, metadata_);
    return run_file(path_, runners_);
  }
  std::string error() {
    const std::string text = error_of([&] { run(); });
    return text.starts_with(path_ + ": ") ? text.substr(path_.size() + 2) : text;
  }
  // If all rows agree, returns "none". Otherwise returns the disagreeing row's tensor and problem ("differs" if the problem is empty).
  std::string fault() {
    std::string found = "none";
    for (const Row& row : run().rows)
      if (!row.agrees()) found = row.tensor + ": " + (row.problem.empty() ? "differs" : row.problem);
    return found;
  }

  const std::string path_ = path("case.safetensors");
  std::map<std::string, at::Tensor> tensors_;
  std::map<std::string, std::string> metadata_;
  Runners runners_;
};

TEST_F(ProbeCases, AgreeingCaseComparesEveryOutputAndGradient) {
  const CaseReport report = run();
  EXPECT_TRUE(report.agrees());
  EXPECT_EQ(report.rows.size(), 5U);
  EXPECT_EQ(report.note, "a note");
}

TEST_F(ProbeCases, FindsEachKindOfFault) {
  tensors_["out.y"] = at::tensor({3.0F, 6.1F});
  EXPECT_EQ(fault(), "out.y: differs");
  tensors_["out.y"] = at::tensor({3.0F, 6.0F});
  tensors_["grad.param.w"] = number(3.1);
  EXPECT_EQ(fault(), "grad.param.w: differs");
  tensors_["grad.param.w"] = number(3.0);
  tensors_["out.z"] = number(1.0);
  EXPECT_EQ(fault(), "out.z: missing: the module has no such output");
  tensors_.erase("out.z");
  tensors_["param.v"] = number(1.0);
  EXPECT_EQ(fault(), "param.v: unknown: the module has no such parameter");
  tensors_.erase("param.v");
  tensors_["grad.param.v"] = number(1.0);
  EXPECT_EQ(fault(), "grad.param.v: missing: the module has no such parameter");
  tensors_.erase("grad.param.v");
  tensors_["out.count"] = at::scalar_tensor(3, at::kLong);
  EXPECT_EQ(fault(), "out.count: differs");
  EXPECT_FALSE(run().agrees());
}

TEST_F(ProbeCases, CotangentsWeightTheOutputs) {
  tensors_.erase("out.loss");
  tensors_["cotangent.y"] = at::tensor({1.0F, 10.0F});
  tensors_["grad.in.x"] = at::tensor({3.0F, 30.0F});
  tensors_["grad.param.w"] = number(21.0);
  EXPECT_TRUE(run().agrees());
}

TEST_F(ProbeCases, ModuleThatThrowsFails) {
  tensors_.erase("in.x");
  const CaseReport report = run();
  EXPECT_FALSE(report.agrees());
  EXPECT_EQ(report.failure, "the case has no input x; it has: ");
}

TEST_F(ProbeCases, ErrorsNameFileAndWayOut) {
  metadata_["module"] = "scal";
  EXPECT_EQ(error(), "unknown module scal: did you mean scale? (known modules: scale)");
  metadata_.erase("module");
  EXPECT_EQ(error(), "not a reference case: its metadata names no module");
  metadata_["module"] = "scale";
  metadata_["settings"] = "{";
  EXPECT_EQ(error(), "settings: not valid JSON");
  metadata_["settings"] = "{}";
  metadata_["rtol"] = "small";
  EXPECT_EQ(error(), "rtol must be a number of at least 0, got small");
  metadata_["rtol"] = "1e-5";
  tensors_["x"] = at::ones({1});
  EXPECT_EQ(
      error(),
      "tensor x: expected a name that begins with in., param., out., cotangent., grad.in., grad.param. or shard.");
  EXPECT_THROW(run_file(path("none.safetensors"), runners_), UserError);
}

TEST_F(ProbeCases, ModulesBindParametersAndSlicesOfThem) {
  struct Fused : torch::nn::Module {
    Fused() { w = register_parameter("w", at::zeros({2})); }
    at::Tensor w;
  };
  runners_.add("fused", [](probe::Run& run) -> Outputs {
    Fused module;
    run.bind("a", module.w, [](const at::Tensor& t) { return t[0]; });
    run.bind("b", module.w, [](const at::Tensor& t) { return t[1]; });
    return {{"loss", (module.w * run.input("x")).sum()}};
  });
  metadata_["module"] = "fused";
  tensors_ = {{"in.x", at::tensor({1.0F, 2.0F})}, {"param.a", number(3.0)},      {"param.b", number(4.0)},
              {"out.loss", number(11.0)},         {"grad.param.a", number(1.0)}, {"grad.param.b", number(2.0)}};
  EXPECT_TRUE(run().agrees()) << format_table(run());
}

TEST_F(ProbeCases, ReadsJsonCasesAndLines) {
  runners_.add("sum", [](probe::Run& run) -> Outputs {
    EXPECT_EQ(run.json_inputs()["words"][1], "b");
    return {{"sum", run.input("rows").sum()}, {"flags", run.input("rows").sum(1) > 3}};
  });
  runners_.add_lines("words", [](const std::vector<nlohmann::json>& lines) {
    std::vector<std::string> problems;
    for (std::size_t i = 0; i < lines.size(); ++i)
      if (lines[i]["n"] != 1) problems.push_back("line " + std::to_string(i + 1) + ": n is not 1");
    return problems;
  });
  const std::string json =
      write("a.json", R"({"module": "sum", "rtol": 1e-6, "inputs": {"rows": [[1, 2], [3, 4.5]], "words": ["a", "b"]},
                         "outputs": {"sum": 10.5, "flags": [false, true]}})");
  EXPECT_TRUE(run_file(json, runners_).agrees()) << format_table(run_file(json, runners_));
  const std::string lines = write("words_more.jsonl", "{\"n\": 1}\n\n{\"n\": 2}\n");
  const CaseReport report = run_file(lines, runners_);
  EXPECT_FALSE(report.agrees());
  ASSERT_EQ(report.rows.size(), 1U);
  EXPECT_EQ(report.rows[0].tensor, "line 2");
}

}  // namespace
}  // namespace tessera::probe
