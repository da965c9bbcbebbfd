#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"
#include <tessera/base/error.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

using ReportProgram = FolderTest;

TEST_F(ReportProgram, WritesAPageAndPrintsTheTable) {
  const auto results = [](const char* top1) {
    return concat(R"({"tasks":[{"task":"zero_shot","data":"d","metrics":{"top1":)", top1, "}}]}");
  };
  write("a/results.json", results("0.5"));
  write("b/results.json", results("0.25"));
  const std::string runs = "tessera-report " + path("a") + " " + path("b"), page = path("page.html"), folder = folder_.string();
  const std::string table = output_of(runs + " --out " + page);
  EXPECT_NE(table.find("| **50.00%** | 25.00% |\n"), std::string::npos) << table;
  EXPECT_TRUE(table.ends_with("page: " + page + "\n")) << table;
  EXPECT_NE(io::read_file(page).find("Comparison of 2 runs"), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(output_of(runs + " --json"), nullptr, false).at("scores").at(0).at("best").dump(), "[true,false]");
  expect_refused(runs + " --out " + folder, "tessera-report: --out " + folder + ": is a folder; name a file, such as --out " +
                                                folder + "/comparison.html");
  const std::string table_file = path("table.tex"), paper = runs + " --paper --digits 0 --columns zero_shot.top1=R@1";
  EXPECT_TRUE(output_of(paper + " --baseline b --out " + table_file).starts_with("|     | runs |    R@1 |\n")) << output_of(paper);
  EXPECT_NE(io::read_file(table_file).find("\na & 1 & \\textbf{50} \\\\\nb & 1 & 25 \\\\\n\\bottomrule\n"), std::string::npos)
      << io::read_file(table_file);
  expect_refused(paper + " --out " + page, "tessera-report: --out " + page + ": with --paper, the name must end with .tex, .md or .csv");
  expect_refused("tessera-report " + path("c"), "tessera-report: " + path("c") + ": there is no such folder");
}

}  // namespace
}  // namespace tessera
