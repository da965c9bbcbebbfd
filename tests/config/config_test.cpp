#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include <tessera/config/registry.h>

namespace tessera {

struct InnerSettings {
  double rate = 0.5;
  std::optional<double> threshold;
  config::Size size = 224;
};
template <class Visitor>
void fields(Visitor& v, InnerSettings& s) {
  v("rate", s.rate, "a rate", config::in_range(0, 1));
  v("threshold", s.threshold, "or null", config::at_least(0));
  v("size", s.size, "pixels");
}

struct OuterSettings {
  std::int64_t steps = 10;
  std::string mode = "fast";
  std::vector<double> values = {1, 2};
  InnerSettings inner;
  bool flag = false;
  std::vector<std::string> names = {"a"};
};
template <class Visitor>
void fields(Visitor& v, OuterSettings& s) {
  v("steps", s.steps, "how many", config::at_least(1));
  v("mode", s.mode, "how", config::one_of({"fast", "slow"}));
  v("values", s.values, "numbers");
  v("inner", s.inner, "group");
  v("flag", s.flag, "switch");
  v("names", s.names, "texts");
}
std::optional<config::Problem> validate(const OuterSettings& s) {
  if (s.flag && s.mode == "slow") return config::Problem{"flag", "cannot be true when mode is slow: set mode to fast"};
  return std::nullopt;
}

namespace {

std::string read_error_of(const std::string& yaml) {
  return error_of([&] { config::read<OuterSettings>(config::parse_yaml(yaml, "a.yaml")); });
}

TEST(Config, ReadsNestedValuesAndKeepsDefaults) {
  const auto s = config::read<OuterSettings>(config::parse_yaml("steps: 3\ninner: {rate: 1, size: [32, 64]}\n", "a.yaml"));
  EXPECT_EQ(s.steps, 3);
  EXPECT_EQ(s.mode, "fast");
  EXPECT_EQ(s.inner.rate, 1.0);
  EXPECT_EQ(s.inner.size, config::Size(32, 64));
  EXPECT_FALSE(s.inner.threshold.has_value());
}

TEST(Config, ErrorsNameFileLineKeyAndNearestName) {
  EXPECT_EQ(read_error_of("steps: 1\nmod: fast\n"), "a.yaml:2: mod: unknown key: did you mean mode?");
  EXPECT_EQ(read_error_of("steps: 0\n"), "a.yaml:1: steps: expected at least 1, got 0");
  EXPECT_EQ(read_error_of("steps: many\n"), "a.yaml:1: steps: expected a whole number, got \"many\"");
  EXPECT_EQ(read_error_of("inner:\n  rate: 2\n"), "a.yaml:2: inner.rate: expected from 0 to 1, got 2");
  EXPECT_EQ(read_error_of("inner:\n  rat: 2\n"), "a.yaml:2: inner.rat: unknown key: did you mean rate?");
  EXPECT_EQ(read_error_of("mode: fsat\n"), "a.yaml:1: mode: expected one of fast and slow, got \"fsat\": did you mean fast?");
  EXPECT_EQ(read_error_of("inner: 3\n"), "a.yaml:1: inner: expected a group of settings, got \"3\"");
  EXPECT_EQ(read_error_of("flag: true\nmode: slow\n"), "a.yaml:1: flag: cannot be true when mode is slow: set mode to fast");
  EXPECT_EQ(read_error_of("steps: 1\nsteps: 2\n"), "a.yaml:2: steps is given twice in the same group");
  EXPECT_NE(read_error_of("steps: [1\n").find("a.yaml:"), std::string::npos);
}

std::string parse_error_of(const std::string& yaml) {
  return error_of([&] { config::parse_yaml(yaml, "a.yaml"); });
}

TEST(Config, AliasesThatExpandTooFarAreRefused) {
  EXPECT_EQ(parse_error_of("a: &a [x, *a]\n"),
            "a.yaml:1: more than 100 nested groups and lists (an alias inside itself?)");
  std::string laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 10; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    laughs += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before;
    for (int k = 1; k < 10; ++k) laughs += ", " + before;
    laughs += "]\n";
  }
  EXPECT_EQ(parse_error_of(laughs), "a.yaml:1: more than 1,000,000 values, with aliases expanded: expected settings");
}

TEST(Config, TextThatIsNotUtf8IsRefused) {
  EXPECT_EQ(parse_error_of("a: 1\nb: x\xFFy\n"), "a.yaml:2: not valid YAML: expected UTF-8 without control characters");
  EXPECT_EQ(parse_error_of(std::string("a\0\0\0\n1", 6)), "a.yaml:1: not valid YAML: expected UTF-8 without control characters");
}

TEST(Config, IndentationByTabsIsReported) {
  for (const char* text : {"a:\n\tb: 1\n", "a: 1\n\tb: 2\n", "a:\n  \tb: 1\n"})
    EXPECT_EQ(parse_error_of(text), "a.yaml:2: not valid YAML: the line begins with a tab: indent it with spaces") << text;
  EXPECT_EQ(parse_error_of("a: b\tc\n"), "no error");
}

TEST(Config, ASecondDocumentIsRefused) {
  EXPECT_EQ(parse_error_of("# first\n--- # begins\na: 1\n---\nb: 2\n"),
            "a.yaml:4: not valid YAML: --- begins a second document: expected only one");
  for (const char* text : {"%YAML 1.2\n---\na: 1\n", "a: |\n  ---\n  b\n", "a: 1\n---b: 1\n"})
    EXPECT_EQ(parse_error_of(text), "no error") << text;
}

TEST(Config, UnquotedBracesAreReported) {
  for (const auto& [line, word] : {std::pair<std::string, std::string>{"a: {b: x/{0..3}.tar}", "x/{0..3}.tar"},
                                   {"a: {b: {0..3}.tar, c: 1}", "{0..3}.tar"},
                                   {"a: {b: ${DATA}/x/{0..3}.tar}", "${DATA}/x/{0..3}.tar"},
                                   {"a: {b: ${DATA}}", "${DATA}"},
                                   {"a: [c, x/{train,val}.csv]", "x/{train,val}.csv"},
                                   {"a: {0..3}.tar", "{0..3}.tar"}})
    EXPECT_EQ(parse_error_of("c: 1\n" + line + "\n"),
              "a.yaml:2: not valid YAML: a value with braces needs quotes here: '" + word + "'")
        << line;
  EXPECT_EQ(parse_error_of("a: {b: {0..3}}\n"), "a.yaml:1: a value with braces needs quotes here: '{0..3}'");
  for (const char* text : {"a: {b: 'x/{0..3}.tar'}\n", "a: ${DATA}/{0..3}.tar\n", "a: {b: {c: ~}}\n"})
    EXPECT_EQ(parse_error_of(text), "no error") << text;
  EXPECT_EQ(parse_error_of("a: {b: 1\n").find("braces"), std::string::npos) << "the group is not closed, so braces are not the mistake";
}

TEST(Config, DeepNestingIsRefused) {
  for (const char* level : {"[", "{a: ", "- ", "? "}) {
    std::string deep;
    for (int i = 0; i < 100'000; ++i) deep += level;
    EXPECT_EQ(parse_error_of(deep).substr(0, 6), "a.yaml") << level;
  }
  config::Node node;
  std::string key = "a";
  for (int i = 0; i < 100'000; ++i) key += ".a";
  EXPECT_THROW(config::apply_override(node, key + "=1"), UserError);
  EXPECT_THROW(config::apply_override(node, "a.b\xE9=1"), UserError);
  EXPECT_THROW(config::apply_override(node, "a.b\x01=1"), UserError);
  nlohmann::json json;
  for (int i = 0; i < 1000; ++i) json = nlohmann::json::array({std::move(json)});
  EXPECT_THROW(config::from_json(json, "model.safetensors"), UserError);
}

TEST(Config, ErrorsEscapeControlCharactersInQuotes) {
  EXPECT_EQ(read_error_of("\"a\\nb\": 1\n"), "a.yaml:1: a\\nb: unknown key; known: steps, mode, values, inner, flag and names");
  EXPECT_EQ(read_error_of("steps: \"\\a\"\n"), "a.yaml:1: steps: expected a whole number, got \"\\u0007\"");
}

TEST(Config, DumpReadsBackEqual) {
  OuterSettings s;
  s.inner.threshold = 0.125;
  s.mode = "slow";
  const auto again = config::read<OuterSettings>(config::parse_yaml(config::to_yaml(config::dump(s)), "dump"));
  EXPECT_EQ(config::to_yaml(config::dump(again)), config::to_yaml(config::dump(s)));
}

TEST(Config, OneTextIsAcceptedAsAListOfTexts) {
  EXPECT_EQ(config::read<OuterSettings>(config::parse_yaml("names: b", "a.yaml")).names, std::vector<std::string>{"b"});
  EXPECT_EQ(read_error_of("values: 3"), "a.yaml:1: values: expected list of float, got \"3\"");
}

TEST(Config, OverridesAcceptEmptyTextAndNull) {
  config::Node node;
  config::apply_override(node, "mode=,");
  EXPECT_EQ(node.find("mode")->text(), ",");
  for (const char* nothing : {"mode=", "mode=null", "mode=~", "mode= # said later"}) {
    config::apply_override(node, nothing);
    EXPECT_TRUE(node.find("mode")->is_null()) << nothing;
  }
}

TEST(Config, NoncharacterCodePointsAreRefused) {
  for (const char* text : {"mode: \"\\uFFFF\"", "mode: a\xEF\xBF\xBE", "mode: \xF0\x9F\xBF\xBF", "\xEF\xB7\x90: 1"})
    EXPECT_EQ(read_error_of(text), "a.yaml:1: not valid YAML: it holds a Unicode noncharacter (U+FFFE, U+FFFF, ...)");
  EXPECT_EQ(config::parse_yaml("a: \xEF\xBF\xBD\xEF\xBD\xBF\xEB\xBF\xBF", "a.yaml").find("a")->text(),
            "\uFFFD\uFF7F\uBFFF");
}

TEST(Config, OverridesReachNestedKeysAndCreateThem) {
  config::Node node = config::parse_yaml("steps: 3\n", "a.yaml");
  config::apply_override(node, "inner.rate=0.25");
  config::apply_override(node, "values=[4, 5]");
  const auto s = config::read<OuterSettings>(node);
  EXPECT_EQ(s.inner.rate, 0.25);
  EXPECT_EQ(s.values, (std::vector<double>{4, 5}));
  for (const char* index : {"2", "99999999999999999999999", "x"})
    EXPECT_EQ(error_of([&] { config::apply_override(node, concat("values.", index, "=1")); }),
              concat("--set values.", index, "=1: ", index, " is not a valid index into a list of 2"));
  config::apply_override(node, "inner.rat=1");
  EXPECT_THROW(config::read<OuterSettings>(node), UserError);
}

// Returns the chosen module as JSON after applying the overrides to `yaml`.
std::string module_after(const std::string& yaml, const std::vector<std::string>& overrides) {
  config::Node node = config::parse_yaml(yaml, "a.yaml");
  for (const std::string& assignment : overrides) config::apply_override(node, assignment);
  const auto choice = config::Value<config::ModuleSettings>::read(*node.find("module"), "module", {.name = "b"});
  return config::to_json(config::Value<config::ModuleSettings>::dump(choice)).dump();
}

TEST(Config, APlainNameSelectsAModule) {
  EXPECT_EQ(module_after("module: a", {}), R"({"name":"a"})");
  EXPECT_EQ(module_after("module: {name: a, x: 1}", {"module=c", "module.y=2"}), R"({"name":"c","y":2})");
  EXPECT_EQ(module_after("seed: 1", {"module=c", "module.y=2"}), R"({"name":"c","y":2})");
  EXPECT_EQ(module_after("module: a", {"module.y=2", "module.z=3"}), R"({"name":"a","y":2,"z":3})");
  EXPECT_EQ(module_after("module: {name: a, x: 1}", {"module=a", "module.y=2"}), R"({"name":"a","x":1,"y":2})");
  EXPECT_EQ(module_after("module: {name: a, x: 1}", {"module={y: 2}"}), R"({"name":"a","x":1,"y":2})");
}

TEST(Config, SettingsWithoutANameApplyToTheDefaultOrInheritedModule) {
  EXPECT_EQ(module_after("module: {x: 1}", {}), R"({"name":"b","x":1})");
  config::Node base = config::parse_yaml("module: a", "base.yaml");
  base.merge(config::parse_yaml("module: {x: 1}", "a.yaml"));
  EXPECT_EQ(config::to_json(base).dump(), R"({"module":{"name":"a","x":1}})");
}

TEST(Config, UnknownKeysSuggestTheNearestSetting) {
  EXPECT_EQ(read_error_of("max_steps: 3"), "a.yaml:1: max_steps: unknown key: did you mean steps?");
  const config::Node node = config::parse_yaml("1", "a.yaml");
  const auto text = [&](const std::string& key) {
    const std::vector<std::string> paths = {"optimizer.lr", "training.steps", "data.loader.batch_size", "optimizer.lr"};
    return std::string(config::UnknownKey(node, "", key, {"seed", "log"}).seen_among(paths).what());
  };
  EXPECT_EQ(text("lr"), "a.yaml:1: lr: unknown key: did you mean optimizer.lr?");
  EXPECT_EQ(text("learning_rate"), "a.yaml:1: learning_rate: unknown key: did you mean optimizer.lr?");
  EXPECT_EQ(text("steps"), "a.yaml:1: steps: unknown key: did you mean training.steps?");
  EXPECT_EQ(text("batch_size"), "a.yaml:1: batch_size: unknown key: did you mean data.loader.batch_size?");
  EXPECT_EQ(text("sed"), "a.yaml:1: sed: unknown key: did you mean seed?");
  EXPECT_EQ(std::string(config::UnknownKey(node, "tokenizer", "model", {"name"}).seen_among({"model", "tokenizer.model"}).what()),
            "a.yaml:1: tokenizer.model: unknown key; known: name")
      << "neither the key itself nor a whole group is suggested";
  const std::vector<std::string> precisions = {"float32", "bf16", "fp16"};
  EXPECT_EQ(config::same_meaning("bfloat16", precisions), "bf16");
  EXPECT_EQ(config::same_meaning("half", precisions), "fp16");
  EXPECT_EQ(config::same_meaning("gpu", {"auto", "cpu", "cuda"}), "cuda");
}

TEST(Config, AnUnknownKeyIsReportedBeforeAWrongValue) {
  EXPECT_EQ(read_error_of("steps: many\nmod: fast\n"), "a.yaml:2: mod: unknown key: did you mean mode?");
}

using ConfigFiles = FolderTest;

TEST_F(ConfigFiles, OverridesApplyBeforeEnvironmentVariables) {
  const std::string file = write("a.yaml", "steps: ${TESSERA_TEST_NEVER_SET}\n");
  EXPECT_THROW(config::load_yaml(file), UserError);
  EXPECT_EQ(config::load_yaml(file, {"steps=5"}).find("steps")->text(), "5");
}

TEST_F(ConfigFiles, ExtendsMergesTheFileOverItsParentAndRefusesCycles) {
  write("base.yaml", "steps: 5\ninner: {rate: 0.1, threshold: 2}\nmodule: {name: a, x: 1}\n");
  const std::string child = write("child.yaml", "extends: base.yaml\ninner: {rate: 0.2}\nmodule: {name: b}\n");
  const config::Node node = config::load_yaml(child);
  EXPECT_EQ(node.find("steps")->text(), "5");
  EXPECT_EQ(node.find("inner")->find("rate")->text(), "0.2");
  EXPECT_EQ(node.find("inner")->find("threshold")->text(), "2");
  EXPECT_EQ(node.find("module")->find("x"), nullptr) << "settings of the parent's module must not survive a change of name";
  EXPECT_THROW(config::load_yaml(write("loop.yaml", "extends: loop.yaml\n")), UserError);
}

TEST_F(ConfigFiles, AnExtendedFileMayBeEmptyButNotAList) {
  write("base.yaml", "steps: 5\n");
  write("empty.yaml", "# nothing\n");
  EXPECT_EQ(config::load_yaml(write("a.yaml", "extends: [base.yaml, empty.yaml]\n")).find("steps")->text(), "5");
  const std::string list = write("list.yaml", "[1]\n"), child = write("b.yaml", "extends: [base.yaml, list.yaml]\n");
  EXPECT_EQ(error_of([&] { config::load_yaml(child); }), list + ": expected settings (key: value), got a list of 1");
}

TEST_F(ConfigFiles, ARunOrStageThatIsRenamedKeepsItsSettings) {
  write("base.yaml", "run: {name: base, folder: big}\nstages: [{name: first, seed: 3}]\n");
  const std::string child = write("child.yaml", "extends: base.yaml\nrun: {name: mine}\n");
  for (const char* assignment : {"seed=1", "run.name=slow", "run={name: slow}"}) {
    const config::Node node = config::load_yaml(child, {assignment, "stages.0.name=second"});
    ASSERT_NE(node.find("run")->find("folder"), nullptr) << assignment;
    EXPECT_EQ(node.find("run")->find("folder")->text(), "big") << assignment;
    EXPECT_NE(node.find("stages")->items()[0].find("seed"), nullptr) << assignment;
  }
}

struct CountedSettings {
  std::int64_t size = 1;
  static inline int reads = 0;
};
template <class Visitor>
void fields(Visitor& v, CountedSettings& s) {
  v("size", s.size, "a number");
}
std::optional<config::Problem> validate(const CountedSettings&) {
  ++CountedSettings::reads;
  return std::nullopt;
}

TEST(Config, RegistryKeepsTheSettingsThatItHasRead) {
  config::Registry<std::int64_t> registry("number");
  registry.add<CountedSettings>("size", "a number", [](const CountedSettings& s) { return std::make_shared<std::int64_t>(s.size); });
  config::ModuleSettings choice = registry.resolve({"size", config::parse_yaml("{size: 4}", "a.yaml")}, "module");
  const int reads = CountedSettings::reads;
  for (int i = 0; i < 2; ++i) EXPECT_EQ(*registry.make(choice, "module"), 4);
  EXPECT_EQ(CountedSettings::reads, reads);
  EXPECT_EQ(*registry.make(choice, "elsewhere"), 4);
  EXPECT_EQ(CountedSettings::reads, reads + 1) << "messages name another path";
  choice.settings.set("size", config::Node::scalar("5"));
  EXPECT_EQ(*registry.make(choice, "module"), 5) << "the settings were changed";
  EXPECT_EQ(CountedSettings::reads, reads + 2);
}

TEST(Config, RegistrySuggestsTheNearestModule) {
  struct Thing {};
  config::Registry<Thing> registry("thing");
  registry.add<InnerSettings>("sparc", "a thing", [](const InnerSettings&) { return std::make_shared<Thing>(); });
  const auto choice = config::Value<config::ModuleSettings>::read(config::parse_yaml("{name: sprac, rate: 0.1}", "a.yaml"), "objective", {});
  EXPECT_EQ(error_of([&] { registry.resolve(choice, "objective"); }),
            "a.yaml:1: objective: unknown thing sprac: did you mean sparc?");
}

}  // namespace
}  // namespace tessera
