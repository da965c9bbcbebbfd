#include <filesystem>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include <tessera/config/node.h>
#include <tessera/config/shipped.h>

namespace tessera::config {
namespace {

namespace fs = std::filesystem;

/// Gives each test its own working folder, with a separate folder of shipped configurations.
class ShippedConfigurations : public FolderTest {
 protected:
  ShippedConfigurations() {
    fs::create_directories(folder_ / "work");
    fs::current_path(folder_ / "work");
    write("share/configs/sparc/small.yaml", "# SPARC, small.\nseed: 1\n");
    write("share/configs/sparc/clip_small.yaml", "# CLIP, small.\nextends: small.yaml\n");
    write("share/configs/text_group/small.yaml", "# Text groups, small.\nextends: ../sparc/small.yaml\n");
    write("share/configs/parts/towers.yaml", "# Small towers.\n");
    write("share/configs/suites/shapes.yaml", "# The shapes.\n");
  }
  ~ShippedConfigurations() override { fs::current_path(before_); }

  std::string find(const std::string& name) const { return find_configuration(name, shipped_); }
  std::string error_for(const std::string& name) const {
    return error_of([&] { find(name); });
  }

  const fs::path before_ = fs::current_path();
  const std::string shipped_ = path("share/configs");
};

TEST_F(ShippedConfigurations, ANameMissingFromTheWorkingFolderIsFoundAmongThem) {
  const std::string file = shipped_ + "/sparc/clip_small.yaml";
  for (const std::string place : {"sparc/clip_small", "sparc_clip_small"})
    for (const std::string& name : {place, place + ".yaml", "configs/" + place, "configs/" + place + ".yaml", shipped_ + "/" + place,
                                    shipped_ + "/" + place + ".yaml"})
      EXPECT_EQ(find(name), file) << name;
  EXPECT_EQ(find("text_group_small"), shipped_ + "/text_group/small.yaml") << "an underscore may be part of the folder's name";
  EXPECT_EQ(find("configs/suites/shapes.yaml"), shipped_ + "/suites/shapes.yaml");
}

TEST_F(ShippedConfigurations, AFileOfTheWorkingFolderComesFirst) {
  write("work/sparc_small.yaml", "seed: 2\n");
  fs::create_directories("sparc_clip_small");
  fs::create_directories("text_group");
  write("work/text_group/small.yaml", "seed: 2\n");
  EXPECT_EQ(find("sparc_small.yaml"), "sparc_small.yaml");
  EXPECT_EQ(find("sparc_small"), "sparc_small.yaml");
  EXPECT_EQ(find("text_group/small"), "text_group/small.yaml");
  EXPECT_EQ(find("sparc_clip_small"), shipped_ + "/sparc/clip_small.yaml") << "a folder is not a configuration";
}

TEST_F(ShippedConfigurations, ARunIsNamedByItsRecipeHoweverThatIsGiven) {
  const auto name = [&](const std::string& file) { return configuration_name(file, shipped_); };
  EXPECT_EQ(name(find("sparc_clip_small")), "sparc_clip_small");
  EXPECT_EQ(name("../share/configs/text_group/small.yaml"), "text_group_small");
  fs::current_path(folder_ / "share/configs/sparc");
  EXPECT_EQ(name("small.yaml"), "sparc_small");
  EXPECT_EQ(name(folder_ / "elsewhere/configs/sparc/small.yaml"), "sparc_small") << "a copy of the shipped configurations";
  EXPECT_EQ(name(folder_ / "work/configs/mine/small.yaml"), "small") << "not a recipe";
  EXPECT_EQ(name(folder_ / "work/sparc/small.yaml"), "small") << "not a copy of the shipped configurations";
  EXPECT_EQ(name("my.run.yaml"), "my.run");
}

TEST_F(ShippedConfigurations, AnUnknownNameIsReportedWithTheSearchedFoldersAndTheNearestName) {
  const std::string places = ": no such configuration file in the working folder or in " + shipped_;
  EXPECT_EQ(error_for("spark_small.yaml"), "spark_small.yaml" + places + ": did you mean sparc_small?");
  EXPECT_EQ(error_for("configs/suite/shapes.yaml"), "configs/suite/shapes.yaml" + places + ": did you mean suites/shapes?");
  EXPECT_EQ(error_for("spark/small"), "spark/small" + places + ": did you mean sparc/small?");
  EXPECT_EQ(error_for("configs/text_groups_small"), "configs/text_groups_small" + places + ": did you mean text_group_small?");
  EXPECT_EQ(error_for("sparc"), "sparc" + places + "; trainer --list-configs lists all") << "a folder of recipes";
  EXPECT_EQ(error_for("quite_different"), "quite_different" + places + "; trainer --list-configs lists all");
  EXPECT_EQ(error_for("/no/where/sparc_smal.yaml"), "/no/where/sparc_smal.yaml: no such configuration file; trainer --list-configs "
                                                  "lists all");
  fs::create_directories("mine");
  EXPECT_EQ(error_for("mine"), "mine: is a folder, expected a YAML file");
}

TEST_F(ShippedConfigurations, AreListedByFolderWithTheFirstLineOfEach) {
  EXPECT_EQ(list_configurations(shipped_), "in " + shipped_ + ", for --config:\n" +
                                               "\n"
                                               "sparc/clip_small  CLIP, small.\n"
                                               "sparc/small       SPARC, small.\n"
                                               "\n"
                                               "text_group/small  Text groups, small.\n");
  EXPECT_THROW(list_configurations((folder_ / "none").string()), UserError);
}

TEST_F(ShippedConfigurations, AreFoundInTheSourceTreeByProgramsBuiltThere) {
  EXPECT_EQ(shipped_folder(), TESSERA_SOURCE_DIR "/configs");
  EXPECT_TRUE(fs::is_regular_file(clip_vocabulary_file()));
  EXPECT_TRUE(fs::is_regular_file(documentation("configuration.md")));
  EXPECT_NE(load_yaml("clip_vitb16").find("objective"), nullptr) << "the configuration it extends must be found from any working folder";
}

TEST_F(ShippedConfigurations, CanBeExtendedByName) {
  fs::create_directories("sparc_vitb16");  // a folder is not a configuration
  for (const char* name : {"sparc/vitb16.yaml", "sparc_vitb16.yaml", "sparc_vitb16", "configs/sparc_vitb16.yaml"}) {
    write("work/mine.yaml", concat("extends: ", name, "\nobjective: {name: clip}\n"));
    EXPECT_EQ(load_yaml("mine.yaml").find("objective")->find("name")->text(), "clip") << name;
    EXPECT_NE(load_yaml("mine.yaml").find("optimizer"), nullptr) << name;
  }
  write("work/mine.yaml", "seed: 1\nextends: spark_vitb16.yaml\n");
  EXPECT_EQ(error_of([] { load_yaml("mine.yaml"); }),
            "mine.yaml:2: extends: spark_vitb16.yaml: no such configuration file in the working folder or in " TESSERA_SOURCE_DIR
            "/configs: did you mean sparc_vitb16?");
  const std::string long_name(300, 'x');
  write("work/mine.yaml", "extends: " + long_name + "\n");
  EXPECT_TRUE(error_of([] { load_yaml("mine.yaml"); }).starts_with("mine.yaml:1: extends: " + long_name + ": no such configuration file"));
}

TEST_F(ShippedConfigurations, EachStartsWithAOneLineDescription) {
  std::istringstream lines(list_configurations());
  std::string line;
  std::getline(lines, line);
  int count = 0;
  while (std::getline(lines, line)) {
    if (line.empty()) continue;  // an empty line separates two folders
    const std::string text = line.substr(line.find(' '));
    EXPECT_GE(text.size(), 30u) << line;
    EXPECT_LE(line.size(), 140u) << line;
    EXPECT_EQ(line.back(), '.') << "a whole sentence on one line: " << line;
    ++count;
  }
  EXPECT_GE(count, 30);
}

}  // namespace
}  // namespace tessera::config
