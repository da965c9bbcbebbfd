#include <cctype>
#include <set>
#include <utility>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"
#include <tessera/evaluation/task.h>
#include <tessera/io/atomic_file.h>
#include <tessera/models/model_file.h>

namespace tessera {
namespace {

/// A fixture with a tiny model in its own folder.
class EvaluateProgram : public FolderTest {
 protected:
  EvaluateProgram() {
    ModelFile file;
    file.model = config::read<ModelSettings>(config::parse_yaml(
        "image: {encoder: {name: vit, image_size: 32, patch_size: 8, width: 16, layers: 1, heads: 2}}\n"
        "text: {encoder: {name: text_transformer, vocab_size: 20, context_length: 16, width: 16, layers: 1, heads: 2}}\n"
        "preprocessing: {image_size: 32}\n",
        "model.yaml"));
    file.tokenizer = {"wordpiece", config::parse_yaml("{context_length: 16}", "tokenizer.yaml")};
    file.vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nred\nblue\ncircle\nsquare\npicture\nof\nthe\n";
    at::manual_seed(3);
    file.weights = DualEncoder(file.model).state_dict();
    save_model_file(path("model.safetensors"), file);
    write("suite.yaml",
          "source: {name: shapes, split: test, size: 40}\ntrain: {name: shapes, size: 60}\nbatch_size: 7\n"
          "tasks: [zero_shot, retrieval, segmentation, {name: knn, k: 3}]\n");
  }

  std::string command(const std::string& arguments) const {
    return "evaluate --checkpoint " + path("model.safetensors") + " --device cpu --threads 1 --no-pictures " + arguments;
  }
  nlohmann::json tasks(const std::string& out) const {
    return nlohmann::json::parse(io::read_file(path(out + "/results.json"))).at("tasks");
  }
};

TEST(EvaluateHelp, NamesEveryTask) {
  const std::string help = output_of("evaluate --help");
  const std::size_t begin = help.find("one task: "), end = help.find(". Without --suite", begin);
  ASSERT_NE(end, std::string::npos) << help;
  std::set<std::string> named;
  std::string word;
  for (const char c : help.substr(begin, end - begin) + " ")
    if (c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0)
      word += c;
    else
      named.insert(std::exchange(word, ""));
  for (const std::string& name : evaluation_tasks().names()) EXPECT_TRUE(named.contains(name)) << name;
}

TEST_F(EvaluateProgram, SeveralProcessesMeasureTheSameAsOne) {
  const std::string suite = "--suite " + path("suite.yaml") + " --out ";
  output_of(command(suite + path("one")));
  output_of(command(suite + path("two") + " --nproc 2"));
  const auto alone = tasks("one"), shared = tasks("two");
  ASSERT_EQ(alone.size(), 4U);
  for (std::size_t i = 0; i < alone.size(); ++i)
    for (const auto& [name, value] : alone[i].at("metrics").items())
      EXPECT_NEAR(shared[i].at("metrics").at(name).get<double>(), value.get<double>(), 1e-3) << name;
}

TEST_F(EvaluateProgram, AMistakeEndsAllProcessesAndIsReportedOnce) {
  const Answer answer = answer_of(command("--task zero_shot --data nowhere --nproc 2 --out " + path("out")));
  EXPECT_NE(answer.code, 0);
  EXPECT_NE(answer.text.find("--data nowhere: there is no such file or folder"), std::string::npos) << answer.text;
  EXPECT_EQ(answer.text.find("--data nowhere", answer.text.find("--data nowhere") + 1), std::string::npos) << "reported twice";
}

TEST_F(EvaluateProgram, ASecondEvaluationReusesTheCachedFeatures) {
  const std::string arguments = "--suite " + path("suite.yaml") + " --features-cache " + path("features") + " --out ";
  output_of(command(arguments + path("one")));
  const std::string second = output_of(command(arguments + path("two")));
  EXPECT_NE(second.find("40 of 40 image embeddings came from the cache"), std::string::npos) << second;
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(tasks("one")[i].at("metrics"), tasks("two")[i].at("metrics"));
}

}  // namespace
}  // namespace tessera
