#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>

#include "src/data/image/encode.h"
#include "src/evaluation/tasks/task_settings.h"
#include "tests/evaluation/task_case.h"
#include <tessera/evaluation/evaluate.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// Returns a setting of the suite's first task.
template <class T>
T setting(const SuiteSettings& suite, const char* key) {
  return config::Value<T>::read(*suite.tasks.at(0).settings.find(key), key, {});
}

class SuiteFiles : public FolderTest {
 protected:
  /// Returns the error that load_suite throws for a suite file with this text.
  std::string error_of(const std::string& text, const std::vector<std::string>& overrides = {}) const {
    EvaluateOptions options;
    options.suite = write("suite.yaml", text);
    options.overrides = overrides;
    const std::string message = tessera::error_of([&] { load_suite(options, config::Node::map()); }), place = path("");
    return message.starts_with(place) ? message.substr(place.size()) : message;
  }
};

TEST_F(SuiteFiles, SuggestTheNearestTask) {
  EXPECT_EQ(error_of("tasks:\n  - name: zero_shots\n"),
            "suite.yaml:2: tasks[0]: unknown evaluation task zero_shots: did you mean zero_shot?");
}

TEST_F(SuiteFiles, SuggestTheNearestKey) {
  EXPECT_EQ(error_of("tasks:\n  - name: zero_shot\n    template: a.txt\n"),
            "suite.yaml:3: tasks[0].template: unknown key: did you mean templates?");
}

TEST_F(SuiteFiles, RejectATemplateWithoutAPlaceForTheClass) {
  EXPECT_EQ(error_of("tasks:\n  - name: zero_shot\n    templates: [\"a {}\", a photo]\n"),
            "suite.yaml:3: tasks[0].templates: template 2, \"a photo\", has no {} where the class name goes");
  EXPECT_EQ(error_of("tasks:\n  - name: zero_shot\n    templates: [\"a \\x7F\"]\n"),
            "suite.yaml:3: tasks[0].templates: template 1, \"a \\u007f\", has no {} where the class name goes");
}

TEST_F(SuiteFiles, NameAMissingTemplateFile) {
  const std::string error = error_of("tasks:\n  - name: segmentation\n    templates: none.txt\n");
  EXPECT_TRUE(error.starts_with("suite.yaml:3: tasks[0].templates: there is no file \"none.txt\" in ")) << error;
  EXPECT_TRUE(error.ends_with(": give a list, or a file with one item per line")) << error;
}

TEST_F(SuiteFiles, NameThePlaceOfWrongNumbers) {
  EXPECT_EQ(error_of("tasks:\n  - name: retrieval\n    topk: [1, 0]\n"),
            "suite.yaml:3: tasks[0].topk: expected at least 1, got 0");
  EXPECT_EQ(error_of("tasks:\n  - name: retrieval\n    topk: []\n"),
            "suite.yaml:3: tasks[0].topk: is empty: give at least one number, such as [1, 5]");
}

TEST_F(SuiteFiles, ReadTemplatesFromAFileNextToTheSuite) {
  write("prompts.txt", "# prompts\na {}\n\n  the {}  \n");
  EvaluateOptions options;
  options.suite = write("suite.yaml", "tasks:\n  - {name: zero_shot, templates: prompts.txt}\n");
  const SuiteSettings suite = load_suite(options, config::Node::map());
  EXPECT_EQ(setting<TextList>(suite, "templates"), (TextList{"a {}", "the {}"}));
}

TEST_F(SuiteFiles, OverridesApplyToASingleTask) {
  EvaluateOptions options;
  options.task = "zero_shot";
  options.overrides = {"topk=[2]", "templates=the {}"};
  const SuiteSettings suite = load_suite(options, config::Node::map());
  EXPECT_EQ(setting<std::vector<std::int64_t>>(suite, "topk"), (std::vector<std::int64_t>{2}));
  EXPECT_EQ(setting<TextList>(suite, "templates"), (TextList{"the {}"}));
}

TEST_F(SuiteFiles, OverridesApplyToQueriesWithoutASuite) {
  EvaluateOptions options;
  options.queries = {"a"};
  options.overrides = {"max_samples=30"};
  const SuiteSettings suite = load_suite(options, config::Node::map());
  ASSERT_EQ(suite.tasks.size(), 1U);
  EXPECT_EQ(suite.tasks[0].settings.find("max_samples")->text(), "30");
  options.task = "retrieval";
  const SuiteSettings both = load_suite(options, config::Node::map());
  ASSERT_EQ(both.tasks.size(), 2U);
  EXPECT_EQ(both.tasks[0].settings.find("max_samples")->text(), "30");
  EXPECT_EQ(both.tasks[1].settings.find("max_samples")->text(), "-1");
}

TEST_F(SuiteFiles, UseTheTasksOfTheRunByDefault) {
  const config::Node run = config::parse_yaml("evaluation: {tasks: [{name: retrieval, topk: [3]}]}\n", "run.yaml");
  EXPECT_EQ(load_suite({}, run).tasks.at(0).name, "retrieval");
  EXPECT_EQ(
      tessera::error_of([] { load_suite({}, config::Node::map()); }),
      "nothing to measure: give --suite FILE (" TESSERA_SOURCE_DIR "/configs/suites has some) or --task NAME, one of " + join_names(evaluation_tasks().names()));
}

TEST_F(SuiteFiles, GuessTheSourceFromThePath) {
  write("a.tar", "");
  fs::create_directories(folder_ / "cats");
  write("b.tgz", "");
  fs::create_directories(folder_ / "compressed");
  write("compressed/a.tar.gz", "");
  EXPECT_EQ(source_from_text(folder_.string(), "--data").name, "webdataset");
  EXPECT_EQ(source_from_text(path("a.tar"), "--data").name, "webdataset");
  EXPECT_EQ(source_from_text(path("b.tgz"), "--data").name, "webdataset");
  EXPECT_EQ(source_from_text(path("compressed"), "--data").name, "webdataset");
  EXPECT_EQ(source_from_text(path("cats"), "--data").name, "image_folder");
  write("rows.jsonl", "");
  EXPECT_EQ(source_from_text(path("rows.jsonl"), "--data").name, "json_lines");
  write("cats/a.parquet", "");
  EXPECT_EQ(source_from_text(path("cats"), "--data").name, "parquet");
  EXPECT_EQ(source_from_text(path("cats/a.parquet"), "--data").name, "parquet");
  EXPECT_EQ(source_from_text("{name: shapes, split: test}", "--data").settings.find("split")->text(), "test");
  EXPECT_THROW(source_from_text("shapess", "--data"), UserError);
}

TEST_F(SuiteFiles, JsonLinesNameImagesNextToThem) {
  write("data/a.png", encode_png({4, 4, std::vector<std::uint8_t>(4 * 4 * 3)}));
  const std::string list = write("data/rows.jsonl", "{\"image\": \"a.png\", \"caption\": \"x\"}\n");
  const auto source = sources().make(source_from_text(list, "--data"), "source");
  EXPECT_EQ(indexed(*source).get(0).captions, std::vector<std::string>{"x"});
}

TEST_F(SuiteFiles, TakeTheSeparatorFromTheFirstLineOfATable) {
  for (const auto& [separator, text] : {std::pair<std::string, std::string>{"comma", "filepath,title\n"},
                                        {"tab", "filepath\ttitle\n"},
                                        {";", "title;filepath;more\n"}}) {
    const auto source = source_from_text(write("a.csv", text), "--data");
    EXPECT_EQ(source.name, "csv");
    EXPECT_EQ(source.settings.find("separator")->text(), separator);
    EXPECT_EQ(source.settings.find("image_keys")->items().at(0).text(), "filepath");
  }
}

TEST_F(SuiteFiles, SuggestSettingsForATableWithOtherColumns) {
  const std::string table = write("fotos.csv", "datei,beschreibung,beschreibung2\n");
  EXPECT_EQ(tessera::error_of([&] { source_from_text(table, "--source"); }),
            "--source " + table +
                ": has no column filepath and title; its columns are: datei, beschreibung and beschreibung2. Name the "
                "columns of images and captions: {name: csv, path: " +
                table + ", separator: comma, image_keys: datei, caption_keys: beschreibung}");
}

TEST_F(SuiteFiles, ReportADefaultInPlaceOfAVariable) {
  ::unsetenv("TESSERA_TEST_UNSET");
  EvaluateOptions options;
  options.suite = write("suite.yaml", "source: {name: shapes, split: '${TESSERA_TEST_UNSET:-test}'}\ntasks: [knn]\n");
  testing::internal::CaptureStderr();
  load_suite(options, config::Node::map());
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(contains(
      said, options.suite + ": the environment variable TESSERA_TEST_UNSET is not set, so the default test is used"));
}

TEST_F(SuiteFiles, ShippedSuitesAreValid) {
  for (const auto& entry : fs::directory_iterator(TESSERA_SOURCE_DIR "/configs/suites")) {
    EvaluateOptions options;
    options.suite = entry.path().string();
    const std::string error = tessera::error_of([&] { load_suite(options, config::Node::map()); });
    EXPECT_TRUE(error == "no error" || contains(error, ": give --data FOLDER, ")) << options.suite << ": " << error;
  }
}

}  // namespace
}  // namespace tessera
