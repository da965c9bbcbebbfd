#include <filesystem>
#include <unistd.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/program.h"
#include <tessera/base/error.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

TEST(ReportProgram, WritesAPageAndPrintsTheTable) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / concat("tessera_report_program_", ::getpid());
  const auto results = [](const char* top1) {
    return concat(R"({"tasks":[{"task":"zero_shot","data":"d","metrics":{"top1":)", top1, "}}]}");
  };
  io::write_file((folder / "a/results.json").string(), results("0.5"));
  io::write_file((folder / "b/results.json").string(), results("0.25"));
  const std::string runs = (folder / "a").string() + " " + (folder / "b").string();
  const std::string page = (folder / "page.html").string();
  const Answer table = answer_of("tessera-report " + runs + " --out " + page);
  const Answer json = answer_of("tessera-report " + runs + " --json");
  const Answer onto_folder = answer_of("tessera-report " + runs + " --out " + folder.string());
  const Answer wrong = answer_of("tessera-report " + folder.string() + "/c");
  const std::string html = fs::exists(page) ? io::read_file(page) : "";
  fs::remove_all(folder);
  EXPECT_EQ(table.code, 0);
  EXPECT_NE(table.text.find("| **50.00%** | 25.00% |\n"), std::string::npos) << table.text;
  EXPECT_TRUE(table.text.ends_with("page: " + page + "\n")) << table.text;
  EXPECT_NE(html.find("Comparison of 2 runs"), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(json.text, nullptr, false).at("scores").at(0).at("best").dump(), "[true,false]");
  EXPECT_EQ(onto_folder.code, 2);
  EXPECT_EQ(onto_folder.text, "tessera-report: --out " + folder.string() + ": is a folder; name a file, such as --out " +
                                  folder.string() + "/comparison.html\n");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_EQ(wrong.text, "tessera-report: " + folder.string() + "/c: there is no such folder\n");
}

}  // namespace
}  // namespace tessera
