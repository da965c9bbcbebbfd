#include <cstdlib>
#include <map>

#include <gtest/gtest.h>

#include "src/config/environment.h"
#include "tests/support/error_of.h"

namespace tessera {
namespace {

class Environment : public testing::Test {
 protected:
  void SetUp() override {
    ::setenv("TESSERA_TEST_DATA_ROOT", "/data", 1);
    ::setenv("TESSERA_TEST_EMPTY", "", 1);
    ::setenv("TESSERA_TEST_LATIN_1", "caf\xE9", 1);
    ::unsetenv("TESSERA_TEST_UNSET");
  }

  static config::Node expanded(const std::string& yaml) {
    return config::expand_environment(config::parse_yaml(yaml, "a.yaml"));
  }
  static std::string value_of(const std::string& yaml) { return expanded(yaml).find("a")->text(); }
  static std::string error_in(const std::string& yaml) {
    return error_of([&] { expanded(yaml); });
  }
};

TEST_F(Environment, VariablesAreReplacedByTheirValues) {
  EXPECT_EQ(value_of("a: ${TESSERA_TEST_DATA_ROOT}/train-{00..04}.tar"), "/data/train-{00..04}.tar");
  EXPECT_EQ(value_of("a: ${TESSERA_TEST_UNSET:-/other}/x"), "/other/x");
  EXPECT_EQ(value_of("a: ${TESSERA_TEST_EMPTY:-7}"), "7");
  EXPECT_EQ(value_of("a: '${TESSERA_TEST_EMPTY}'"), "");
  EXPECT_TRUE(expanded("a: ${TESSERA_TEST_UNSET:-null}").find("a")->is_null());
  EXPECT_EQ(expanded("a: [{b: '${TESSERA_TEST_DATA_ROOT}'}]").find("a")->items()[0].find("b")->text(), "/data");
}

TEST_F(Environment, AnUnsetVariableIsReportedWithFileLineAndKey) {
  EXPECT_EQ(error_in("x: 1\na: {b: ['${TESSERA_TEST_UNSET}/y']}"),
            "a.yaml:2: a.b[0]: the environment variable TESSERA_TEST_UNSET is not set: export it, or write "
            "${TESSERA_TEST_UNSET:-default}");
  EXPECT_EQ(
      error_in("a: ${TESSERA TEST}"),
      "a.yaml:1: a: ${TESSERA TEST} is not a variable: expected ${NAME} or ${NAME:-default}; write $${ for a literal ${");
  EXPECT_EQ(error_in("a: '${HOME'"), "a.yaml:1: a: ${ is not closed by }; write $${ for a literal ${");
}

TEST_F(Environment, AVariableThatIsNotUtf8IsReported) {
  EXPECT_EQ(error_in("a: '${TESSERA_TEST_LATIN_1}'"),
            "a.yaml:1: a: the environment variable TESSERA_TEST_LATIN_1 is not UTF-8: caf\uFFFD");
}

TEST_F(Environment, DefaultsInUseAreListed) {
  const config::Node node = config::parse_yaml(
      "a: ['${TESSERA_TEST_UNSET:-/other}/x ${TESSERA_TEST_EMPTY:-7}', '${TESSERA_TEST_DATA_ROOT:-no}', "
      "'$${TESSERA_TEST_PLAIN:-no}', '${TESSERA_TEST_UNSET}']\n",
      "a.yaml");
  EXPECT_EQ(config::defaults_used(node),
            (std::map<std::string, std::string>{{"TESSERA_TEST_EMPTY", "7"}, {"TESSERA_TEST_UNSET", "/other"}}));
}

TEST_F(Environment, ShellCommandsAreNotExpanded) {
  EXPECT_EQ(value_of("a: 'pipe:cat ${TESSERA_TEST_UNSET}'"), "pipe:cat ${TESSERA_TEST_UNSET}");
  EXPECT_EQ(
      expanded("checkpoint: {command: 'cp $1 ${TESSERA_TEST_UNSET}'}").find("checkpoint")->find("command")->text(),
      "cp $1 ${TESSERA_TEST_UNSET}");
}

TEST_F(Environment, EscapedTextExpandsBackToItself) {
  EXPECT_EQ(value_of("a: costs $${x} and $5"), "costs ${x} and $5");
  const config::Node plain = config::Node::map({{"a", config::Node::scalar("$${x} ${y}", {}, true)}});
  const config::Node escaped = config::escape_environment(plain);
  EXPECT_EQ(escaped.find("a")->text(), "$$${x} $${y}");
  EXPECT_EQ(config::expand_environment(escaped).find("a")->text(), plain.find("a")->text());
}

}  // namespace
}  // namespace tessera
