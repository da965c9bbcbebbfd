// Tests what the command lines of all programs have in common.
#include <gtest/gtest.h>

#include "tests/support/error_of.h"
#include "tests/support/program.h"
#include "tools/overrides.h"
#include <tessera/base/version.h>

namespace tessera {
namespace {

constexpr const char* kPrograms[] = {"evaluate",     "tessera-bench", "tessera-convert", "tessera-data",
                                     "tessera-embed", "tessera-index", "tessera-probe",   "tessera-report", "trainer"};

TEST(CommandLine, EveryProgramPrintsItsVersion) {
  for (const std::string program : kPrograms)
    EXPECT_EQ(output_of(program + " --version"), version_line() + "\n") << program;
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

std::string spreading_error(const Words& words) {
  return error_of<CLI::ValidationError>([&] { tools::spread_overrides(words); });
}

TEST(CommandLine, ValuesThatTheShellExpandedAreReportedWithTheQuotesTheyNeed) {
  EXPECT_EQ(spreading_error({"p", "--set", "data.train.path=x/0.tar", "data.train.path=x/1.tar"}),
            "--set: data.train.path is given twice in one go: if the shell has expanded braces, quote the value: "
            "--set data.train.path='...{0..9}...'");
  EXPECT_NE(spreading_error({"p", "--set", "data.train={name:", "csv}"}).find("quote the value"), std::string::npos);
}

void expect_line_refused(const std::string& command, const std::string& text) {
  expect_refused(command, text + " (see --help)");
}

TEST(CommandLine, StrayWordsAreReportedInTheirOrder) {
  expect_line_refused("evaluate --checkpoint x --data a.tar c.tar b.tar",
                      "evaluate: c.tar b.tar: belong to no option. Patterns (part-{0..9}.tar) and values with spaces need "
                      "quotes: otherwise the shell splits them");
}

TEST(CommandLine, ErrorsSuggestTheIntendedCommand) {
  expect_line_refused("trainer clip.yaml", "trainer: clip.yaml: belongs to no option: did you mean --config clip.yaml?");
  expect_line_refused("trainer --config clip.yaml --set optimizer.lr = 0.1",
                      "trainer: --set: expected KEY=VALUE without spaces: --set optimizer.lr=0.1");
  expect_line_refused("trainer --config clip.yaml --set optimizer.lr =0.1",
                      "trainer: --set: expected KEY=VALUE without spaces: --set optimizer.lr=0.1");
  expect_line_refused("trainer --config clip.yaml --set optimizer.lr= 0.1",
                      "trainer: 0.1: expected KEY=VALUE without spaces: --set optimizer.lr=0.1");
  expect_line_refused("trainer --config clip.yaml --resume auto optimizer.lr=0.1",
                      "trainer: optimizer.lr=0.1: put --set before it: --set optimizer.lr=0.1");
  expect_line_refused("trainer --confg clip.yaml", "trainer: --confg: there is no such option: did you mean --config?");
  expect_line_refused("tessera-data inspect --source shapes --samples 3 split=test",
                      "tessera-data: split=test: put --set before it: --set split=test");
  expect_line_refused("tessera-data tokenize --vocab v.txt", "tessera-data: --tokenizer is required");
  expect_line_refused("tessera-embed", "tessera-embed: --checkpoint is required");
}

TEST(CommandLine, EveryProgramDescribesThreadsTheSameWay) {
  for (const std::string program :
       {"trainer", "evaluate", "tessera-embed", "tessera-convert", "tessera-bench step", "tessera-data pack",
        "tessera-data inspect", "tessera-index build", "tessera-index search"})
    EXPECT_NE(output_of(program + " --help").find("CPU threads to use"), std::string::npos) << program;
}

TEST(CommandLine, TrainerAcceptsSettingsAndThreadsTogether) {
  const std::string printed =
      output_of("trainer --config shapes_clip --print-config --threads 3 --set data.loader.threads=5 training.steps=70");
  for (const char* line : {"\n    threads: 5\n", "\n  threads: 3\n", "\n  steps: 70\n"})
    EXPECT_NE(printed.find(line), std::string::npos) << line << printed;
}

}  // namespace
}  // namespace tessera
