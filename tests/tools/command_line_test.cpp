// What all programs have in common on their command lines.
#include <gtest/gtest.h>

#include "tests/support/program.h"
#include "tools/overrides.h"
#include <tessera/base/version.h>

namespace tessera {
namespace {

constexpr const char* kPrograms[] = {"evaluate",     "tessera-bench", "tessera-convert", "tessera-data",
                                     "tessera-embed", "tessera-index", "tessera-probe",   "tessera-report", "trainer"};

TEST(CommandLine, EveryProgramTellsItsVersion) {
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

TEST(CommandLine, WhatTheShellHasTakenApartIsToBeQuoted) {
  EXPECT_EQ(refusal_of({"p", "--set", "data.train.path=x/0.tar", "data.train.path=x/1.tar"}),
            "--set: data.train.path is given twice in one go: if the shell has expanded braces, quote the value: "
            "--set data.train.path='...{0..9}...'");
  EXPECT_NE(refusal_of({"p", "--set", "data.train={name:", "csv}"}).find("quote the value"), std::string::npos);
}

TEST(CommandLine, WordsThatBelongToNoOptionAreSaidToWantQuotes) {
  const Answer answer = answer_of("evaluate --checkpoint x --data a.tar b.tar");
  EXPECT_EQ(answer.code, 2);
  EXPECT_NE(answer.text.find("want quotes"), std::string::npos) << answer.text;
}

TEST(CommandLine, EveryProgramsThreadsAreTheSame) {
  for (const std::string program :
       {"trainer", "evaluate", "tessera-embed", "tessera-convert", "tessera-bench step", "tessera-data pack",
        "tessera-data inspect", "tessera-data shapes", "tessera-index build", "tessera-index search"}) {
    const Answer answer = answer_of(program + " --help");
    EXPECT_NE(answer.text.find("threads of the CPU to work with"), std::string::npos) << program << ": " << answer.text;
  }
}

TEST(CommandLine, TrainerTakesSettingsAndThreadsTogether) {
  const Answer answer =
      answer_of("trainer --config shapes_clip --print-config --threads 3 --set data.loader.threads=5 training.steps=70");
  ASSERT_EQ(answer.code, 0) << answer.text;
  for (const char* line : {"\n    threads: 5\n", "\n  threads: 3\n", "\n  steps: 70\n"})
    EXPECT_NE(answer.text.find(line), std::string::npos) << line << answer.text;
}

}  // namespace
}  // namespace tessera
