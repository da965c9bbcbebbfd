// Tests what the command lines of all programs have in common.
#include <gtest/gtest.h>

#include "tests/support/program.h"
#include "tools/overrides.h"
#include <tessera/base/version.h>

namespace tessera {
namespace {

constexpr const char* kPrograms[] = {"evaluate",     "tessera-bench", "tessera-convert", "tessera-data",
                                     "tessera-embed", "tessera-index", "tessera-probe",   "tessera-report", "trainer"};

TEST(CommandLine, EveryProgramPrintsItsVersion) {
  for (const std::string program : kPrograms) {
    const Answer answer = answer_of(program + " --version");
    EXPECT_EQ(answer.code, 0) << program;
    EXPECT_EQ(answer.text, version_line() + "\n") << program;
  }
}

using Words = std::vector<std::string>;

TEST(CommandLine, SeveralSettingsMayFollowOneOption) {
  EXPECT_EQ(tools::spread_overrides({"p", "--set", "a=1", "b.c=2", "--json"}),
            (Words{"p", "--set", "a=1", "--set", "b.c=2", "--json"}));
  EXPECT_EQ(tools::spread_overrides({"p", "--set=a=1", "b=2"}), (Words{"p", "--set=a=1", "--set", "b=2"}));
  EXPECT_EQ(tools::spread_overrides({"p", "--set", "a=1", "--set", "a=2"}),
            (Words{"p", "--set", "a=1", "--set", "a=2"}));
}

TEST(CommandLine, SettingsDoNotSwallowAProgramsFiles) {
  EXPECT_EQ(tools::spread_overrides({"p", "--set", "a=1", "in.tar", "./x=1.tar"}),
            (Words{"p", "--set", "a=1", "in.tar", "./x=1.tar"}));
}

std::string refusal_of(const Words& words) {
  try {
    tools::spread_overrides(words);
  } catch (const CLI::ValidationError& error) {
    return error.what();
  }
  return "no error";
}

TEST(CommandLine, ValuesThatTheShellExpandedAreReportedWithTheQuotesTheyNeed) {
  EXPECT_EQ(refusal_of({"p", "--set", "data.train.path=x/0.tar", "data.train.path=x/1.tar"}),
            "--set: data.train.path is given twice in one go: if the shell has expanded braces, quote the value: "
            "--set data.train.path='...{0..9}...'");
  EXPECT_NE(refusal_of({"p", "--set", "data.train={name:", "csv}"}).find("quote the value"), std::string::npos);
}

void expect_refused(const std::string& command, const std::string& text) {
  const Answer answer = answer_of(command);
  EXPECT_EQ(answer.code, 2) << command;
  EXPECT_EQ(answer.text, text + " (see --help)\n") << command;
}

TEST(CommandLine, StrayWordsAreReportedInTheirOrder) {
  expect_refused("evaluate --checkpoint x --data a.tar c.tar b.tar",
                 "evaluate: c.tar b.tar: belong to no option. Patterns (part-{0..9}.tar) and values with spaces need "
                 "quotes: otherwise the shell splits them");
}

TEST(CommandLine, ErrorsSuggestTheIntendedCommand) {
  expect_refused("trainer clip.yaml", "trainer: clip.yaml: belongs to no option: did you mean --config clip.yaml?");
  expect_refused("trainer --config clip.yaml --set optimizer.lr = 0.1",
                 "trainer: --set: expected KEY=VALUE without spaces: --set optimizer.lr=0.1");
  expect_refused("trainer --config clip.yaml --set optimizer.lr =0.1",
                 "trainer: --set: expected KEY=VALUE without spaces: --set optimizer.lr=0.1");
  expect_refused("trainer --config clip.yaml --set optimizer.lr= 0.1",
                 "trainer: 0.1: expected KEY=VALUE without spaces: --set optimizer.lr=0.1");
  expect_refused("trainer --config clip.yaml --resume auto optimizer.lr=0.1",
                 "trainer: optimizer.lr=0.1: put --set before it: --set optimizer.lr=0.1");
  expect_refused("trainer --confg clip.yaml", "trainer: --confg: there is no such option: did you mean --config?");
  expect_refused("tessera-data inspect --source shapes --samples 3 split=test",
                 "tessera-data: split=test: put --set before it: --set split=test");
  expect_refused("tessera-data tokenize --vocab v.txt", "tessera-data: --tokenizer is required");
  expect_refused("tessera-embed", "tessera-embed: --checkpoint is required");
}

TEST(CommandLine, EveryProgramDescribesThreadsTheSameWay) {
  for (const std::string program :
       {"trainer", "evaluate", "tessera-embed", "tessera-convert", "tessera-bench step", "tessera-data pack",
        "tessera-data inspect", "tessera-index build", "tessera-index search"}) {
    const Answer answer = answer_of(program + " --help");
    EXPECT_NE(answer.text.find("CPU threads to use"), std::string::npos) << program << ": " << answer.text;
  }
}

TEST(CommandLine, TrainerAcceptsSettingsAndThreadsTogether) {
  const Answer answer =
      answer_of("trainer --config shapes_clip --print-config --threads 3 --set data.loader.threads=5 training.steps=70");
  ASSERT_EQ(answer.code, 0) << answer.text;
  for (const char* line : {"\n    threads: 5\n", "\n  threads: 3\n", "\n  steps: 70\n"})
    EXPECT_NE(answer.text.find(line), std::string::npos) << line << answer.text;
}

}  // namespace
}  // namespace tessera
