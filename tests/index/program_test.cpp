#include "tests/support/program.h"

#include <gtest/gtest.h>

#include "tests/index/temporary_index.h"
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera::index {
namespace {

// The index stores these weights exactly: 3 is the largest, and 65,535 / 3 is a whole number.
constexpr const char* kImages =
    "{\"id\": \"p1\", \"vector\": {\"red\": 3, \"circle\": 1}}\n"
    "{\"id\": \"p2\", \"vector\": {\"red\": 1, \"square\": 3}}\n"
    "{\"id\": \"p3\", \"vector\": {\"blue\": 3, \"circle\": 3}}\n";

class IndexProgram : public IndexTest {
 protected:
  void SetUp() override {
    write("words.txt", "red\nblue\ncircle\nsquare\n");
    write("a.jsonl", kImages);
  }
  static std::string run(const std::string& arguments) { return output_of("tessera-index " + arguments); }
  void build() const {
    const std::string built =
        run("build --vocabulary " + path("words.txt") + " --impact-bits 16 " + path("i") + " " + path("a.jsonl"));
    EXPECT_TRUE(built.starts_with(path("i") + ": 3 documents, 6 weights, ")) << built;
  }
  /// Returns one line "id score" per hit of a search.
  std::string found(const std::string& arguments) const {
    std::string hits;
    for (const std::string& line : split(run("search " + path("i") + " --output tsv " + arguments), '\n')) {
      const std::vector<std::string> cells = split(line, '\t');
      if (cells.size() == 4) hits += cells[2] + " " + cells[3] + "\n";
    }
    return hits;
  }
  static void expect_refused(const std::string& arguments, const std::string& text) {
    tessera::expect_refused("tessera-index " + arguments, text);
  }
};

TEST_F(IndexProgram, BuildsSearchesAddsRemovesAndCompacts) {
  build();
  EXPECT_EQ(found("--tokens 'red circle'"), "p1 4\np3 3\np2 1\n");
  EXPECT_EQ(found("--tokens 'red circle' --k 1"), "p1 4\n");
  write("b.jsonl", "{\"id\": \"p4\", \"vector\": {\"red\": 3, \"circle\": 3}}\n");
  EXPECT_EQ(run("add " + path("i") + " " + path("b.jsonl")), path("i") + ": 1 documents added\n");
  EXPECT_EQ(found("--tokens 'red circle' --k 2"), "p4 6\np1 4\n");
  EXPECT_EQ(run("remove " + path("i") + " --ids p4,p3 --compact"),
            path("i") + ": 2 documents removed\n" + path("i") + ": compacted to 2 documents\n");
  EXPECT_EQ(found("--tokens 'red circle'"), "p1 4\np2 1\n");
  EXPECT_NE(run("info " + path("i")).find("documents       2\n"), std::string::npos);
}

TEST_F(IndexProgram, FiltersAndTokenListsNarrowSearches) {
  build();
  EXPECT_EQ(found("--must red,circle"), "p1 4\n");
  EXPECT_EQ(found("--must red --must-not circle"), "p2 1\n");
  EXPECT_EQ(found("--should square,blue"), "p2 3\np3 3\n");
  EXPECT_EQ(found("--tokens 'red circle' --ids p2,p3"), "p3 3\np2 1\n");
  EXPECT_EQ(found("--tokens 'red circle square' --allow-tokens circle,red --block-tokens red"), "p3 3\np1 1\n");
  write("ids.txt", "p2\r\n\r\np3\r\n");
  EXPECT_EQ(found("--tokens 'red circle' --ids-file " + path("ids.txt")), "p3 3\np2 1\n");
  write("list.txt", "circle\n\nblue\n");
  EXPECT_EQ(found("--tokens 'red circle blue' --allow-tokens @" + path("list.txt")), "p3 6\np1 1\n");
}

TEST_F(IndexProgram, ReadsQueriesFromFilesAndLinesAndWritesThreeFormats) {
  build();
  write("q.jsonl", "{\"id\": \"first\", \"vector\": {\"blue\": 1}}\n{\"id\": \"second\", \"vector\": {}}\n");
  EXPECT_EQ(
      run("search " + path("i") + " --queries " + path("q.jsonl")),
      "{\"query\":\"first\",\"results\":[{\"id\":\"p3\",\"score\":3.0}]}\n{\"query\":\"second\",\"results\":[]}\n");
  EXPECT_EQ(run("search " + path("i") + " --queries " + path("q.jsonl") + " --output trec --tag me"),
            "first Q0 p3 1 3 me\n");
  const std::string none = run("search " + path("i") + " --timings --queries " + write("none.jsonl", ""));
  EXPECT_TRUE(none.ends_with(": 0 queries/s\n")) << none;
  write("lines", "blue\nsquare:0.5\n");
  EXPECT_EQ(run("search " + path("i") + " --output tsv --lines " + path("lines")), "0\t1\tp3\t3\n1\t1\tp2\t1.5\n");
  EXPECT_EQ(run("search " + path("i") + " --output tsv --lines - < " + path("lines")), "0\t1\tp3\t3\n1\t1\tp2\t1.5\n");
}

TEST_F(IndexProgram, ConvertsFilesAndIndexes) {
  build();
  run("convert " + path("i") + " " + path("c.txt"));
  EXPECT_EQ(io::read_file(path("c.txt")), "p1\tred:3 circle:1\np2\tsquare:3 red:1\np3\tblue:3 circle:3\n");
  const std::string names = " --vocabulary " + path("words.txt");
  for (const std::string step : {"a.jsonl c.safetensors", "c.safetensors c.ciff", "c.ciff c.csr", "c.csr d.jsonl"}) {
    const std::vector<std::string> files = split(step, ' ');
    EXPECT_EQ(run("convert " + path(files[0]) + " " + path(files[1]) + names),
              path(files[1]) + ": 3 rows, 6 weights\n");
  }
  EXPECT_EQ(io::read_file(path("d.jsonl")).substr(0, 63),
            "{\"id\":\"p1\",\"content\":\"\",\"vector\":{\"red\":3.0,\"circle\":1.0}}\n{\"id");
}

TEST_F(IndexProgram, MistakesAreReportedInOneLineWithExitCodeTwo) {
  build();
  const std::string i = path("i");
  expect_refused("", "tessera-index: A subcommand is required (see --help)");
  expect_refused("build " + i + " " + path("a.jsonl") + " --vocabulary " + path("words.txt"),
                 "tessera-index build: " + i + ": there is already an index; --overwrite replaces it");
  expect_refused(
      "build " + path("j") + " " + path("a.jsonl") + " --vocabulary " + path("words.txt") + " --impact-bits 9",
      "tessera-index build: impacts of 9 bits: expected 8 or 16");
  expect_refused("add " + i + " " + path("a.jsonl"),
                 "tessera-index add: there is already a document p1; --replace replaces it by the new one");
  expect_refused("remove " + i, "tessera-index remove: nothing to remove: give --ids ID,... or --ids-file FILE");
  expect_refused("remove " + i + " --ids p9",
                 "tessera-index remove: there is no document p9 in the index; nothing was removed");
  expect_refused("search " + path("none") + " --must red",
                 "tessera-index search: " + path("none") +
                     ": there is no index (no manifest.json); tessera-index build makes one");
  expect_refused("search " + i,
                 "tessera-index search: no queries: give --queries FILE, --texts FILE, --images FILE, "
                 "--tokens \"WORD ...\", --lines FILE, "
                 "or --must TOKEN");
  expect_refused("search " + i + " --tokens 'redd'",
                 "tessera-index search: --tokens: there is no token redd: did you mean red?");
  expect_refused("search " + i + " --must redd",
                 "tessera-index search: --must: there is no token redd: did you mean red?");
  expect_refused("search " + i + " --tokens red --lines " + path("words.txt"),
                 "tessera-index search: give either --queries, or --texts and --images, or --tokens, or --lines: a search takes "
                 "queries of one kind");
  expect_refused("search " + i + " --must red --output trec --tag 'my run'",
                 "tessera-index search: --output trec: \"my run\" contains a space, which separates columns: take --output jsonl or tsv");
  expect_refused("search " + i + " --must red --k 0",
                 "tessera-index: --k: expected a number above 0, got 0 (see --help)");
  expect_refused("search " + i + " --must red --ids p7", "tessera-index search: there is no document p7 in the index");
  expect_refused("convert " + i + " " + path("no/such.csr"),
                 "tessera-index convert: the output " + path("no/such.csr") + ": there is no folder " + path("no"));
}

}  // namespace
}  // namespace tessera::index
