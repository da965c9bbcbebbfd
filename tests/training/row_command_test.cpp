#include <filesystem>

#include <gtest/gtest.h>

#include "src/training/log/row_command.h"
#include "src/training/trainer.h"
#include "tests/training/tiny_run.h"
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong = std::chrono::seconds(60);  // the tests finish long before this

TEST(RowCommand, ReceivesEachRowAndThenEndOfFile) {
  const TemporaryFolder folder;
  const std::string file = folder / "rows";
  RowCommand command("cat > '" + file + "'; echo \"$COLOR\" >> '" + file + "'", {{"COLOR", "blue"}});
  command.send("one");
  command.send("two");
  EXPECT_EQ(command.close(kLong), std::vector<std::string>{});
  EXPECT_EQ(io::read_file(file), "one\ntwo\nblue\n");
}

TEST(RowCommand, EarlyExitIsReportedOnceAndHarmless) {
  RowCommand command("exit 3", {});
  std::optional<std::string> news;
  while (!news) {
    command.send(std::string(100'000, 'x'));  // more than a pipe holds, so the command's exit raises SIGPIPE, which must not end the test
    news = command.news();
  }
  EXPECT_TRUE(news->starts_with("log.command: exit 3: ended with exit code 3 after ")) << *news;
  EXPECT_TRUE(news->ends_with("; training continues without it"));
  command.send("more");
  EXPECT_EQ(command.news(), std::nullopt);
  EXPECT_EQ(command.close(kLong), std::vector<std::string>{});
}

TEST(RowCommand, DropsAndCountsRowsForASlowCommand) {
  const TemporaryFolder folder;
  const std::string go = folder / "go";
  // The command reads nothing until the file `go` exists.
  RowCommand command("until [ -e '" + go + "' ]; do sleep 0.01; done; cat > /dev/null", {}, /*most_waiting=*/2);
  const std::string row(1 << 20, 'x');
  for (int i = 0; i < 10; ++i) command.send(row);  // one row is being written, one waits, and the others are dropped
  io::write_file(go, "");
  const std::vector<std::string> lines = command.close(kLong);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(contains(lines[0], " rows were dropped and "));
}

TEST(RowCommand, LeavesACommandThatDoesNotEndRunning) {
  const TemporaryFolder folder;
  // The command ends when the test's folder is removed. If it outlived the test, it would keep the test's output open.
  RowCommand command("while [ -d '" + folder / "." + "' ]; do sleep 0.01; done", {});
  const std::vector<std::string> lines = command.close(milliseconds(1));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(contains(lines[0], "is still running"));
}

TEST(RowCommand, ReceivesTheStartRowsAndEvaluationsOfARun) {
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  const auto train = [&](const std::string& resume, const std::string& file, const std::string& steps) {
    const std::string command = "echo $TESSERA_RUN_STEP $TESSERA_RUN_NAME > " + folder / "where" + "; cat > " + file;
    Trainer(tiny_config(run, {"run.name=mine", "training.steps=" + steps, "log.command='" + command + "'",
                              "evaluation.tasks=[{name: retrieval, max_samples: 8}]"}),
            resume)
        .run();
    return json_lines(file);
  };
  const auto first = train("none", folder / "first", "2");
  ASSERT_EQ(first.size(), 4u);
  EXPECT_EQ(first[0]["start"]["step"], 0);
  EXPECT_EQ(first[0]["start"]["name"], "mine");
  EXPECT_EQ(first[1], rows(run)[0]);
  EXPECT_EQ(first[2], rows(run)[1]);
  EXPECT_EQ(first[3]["step"], 2);
  EXPECT_TRUE(first[3]["evaluation"].is_object());
  const auto second = train("auto", folder / "second", "3");
  EXPECT_EQ(second.at(0)["start"]["step"], 2);
  EXPECT_EQ(io::read_file(folder / "where"), "2 mine\n");
}

TEST(RowCommand, IdStaysOnResumeAndIsNewForANewRunOrACopy) {
  namespace fs = std::filesystem;
  const TemporaryFolder folder;
  const auto id_of = [&](const std::string& run, const std::string& resume, int steps) {
    Trainer(tiny_config(folder / run, {concat("training.steps=", steps), "log.command='cat > " + (folder / "rows") + "'"}), resume).run();
    return json_lines(folder / "rows").at(0)["start"]["id"].get<std::string>();
  };
  const std::string first = id_of("run", "none", 1);
  EXPECT_EQ(first, id_of("run", "auto", 2));
  fs::copy(folder / "run", folder / "copy", fs::copy_options::recursive);
  const std::string copy = id_of("copy", "auto", 3), fork = id_of("fork", folder / "run", 3);
  EXPECT_NE(copy, first);
  EXPECT_NE(fork, first);
  EXPECT_EQ(id_of("copy", "auto", 4), copy);
  fs::rename(folder / "run", folder / "moved");
  EXPECT_EQ(id_of("moved", "auto", 3), first);
  EXPECT_NE(id_of("run", "none", 1), first);
}

TEST(RowCommand, RunContinuesIfTheCommandFails) {
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  EXPECT_EQ(Trainer(tiny_config(run, {"log.command=exit 7"}), "none").run(), Outcome::finished);
  EXPECT_TRUE(contains(io::read_file(run + "/log.txt"), "log.command: exit 7: ended with exit code 7"));
}

}  // namespace
}  // namespace tessera
