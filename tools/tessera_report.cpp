#include <filesystem>
#include <iostream>

#include <nlohmann/json.hpp>

#include "src/base/dump_utf8.h"
#include "src/report/comparison.h"
#include "src/report/paper_table.h"
#include "tools/command_line.h"
#include <tessera/base/error.h>
#include <tessera/io/atomic_file.h>

namespace {

struct ReportOptions {
  std::vector<std::string> runs;
  std::string out;
  bool json = false, paper = false;
  tessera::report::PaperSettings settings;
};

/// Returns the paper's table in the format that the file's name asks for.
std::string paper_text(const tessera::report::PaperTable& table, const std::string& file) {
  const std::string ending = std::filesystem::path(file).extension().string();
  if (ending == ".tex") return tessera::report::paper_latex(table);
  if (ending == ".csv") return tessera::report::paper_csv(table);
  if (ending == ".md") return tessera::report::paper_markdown(table);
  tessera::user_error("--out ", file, ": with --paper, the name must end with .tex, .md or .csv");
}

int paper(const ReportOptions& options) {
  const auto table = tessera::report::paper_table(tessera::report::read_compared_runs(options.runs), options.settings);
  if (!options.out.empty()) tessera::io::write_file(options.out, paper_text(table, options.out));
  std::cout << tessera::report::paper_markdown(table) << (options.out.empty() ? "" : "\ntable: " + options.out + "\n") << std::flush;
  return 0;
}

int report(const ReportOptions& options) {
  if (std::filesystem::is_directory(options.out))
    tessera::user_error("--out ", options.out, ": is a folder; name a file, such as --out ",
                        (std::filesystem::path(options.out) / "comparison.html").string());
  if (options.paper) return paper(options);
  const auto runs = tessera::report::read_compared_runs(options.runs);
  if (!options.out.empty()) tessera::io::write_file(options.out, tessera::report::comparison_page(runs));
  if (options.json)
    std::cout << tessera::dump_utf8(tessera::report::comparison_json(runs), 2) << std::endl;
  else
    std::cout << tessera::report::comparison_markdown(runs)
              << (options.out.empty() ? "" : "\npage: " + options.out + "\n") << std::flush;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  ReportOptions options;
  CLI::App app{
      "Compares training runs and evaluations: prints a Markdown table of their numbers, and writes a page with their curves "
      "in one plot, their evaluations side by side and the settings in which they differ. A single run is allowed too. If a "
      "run has several evaluations, the newest value of each number is used."};
  app.add_option("RUN", options.runs, "folders of runs, or folders with a results.json written by evaluate")->required();
  app.add_option("--out", options.out,
                 "self-contained HTML page to write, or with --paper the table (.tex, .md or .csv); an existing file is overwritten");
  CLI::Option* json = app.add_flag("--json", options.json, "print the comparison as JSON instead of tables");
  CLI::Option* paper = app.add_flag("--paper", options.paper,
                                    "make the table of a paper instead: one row for the runs that differ only in their seed, with means "
                                    "over seeds and 95 % intervals")->excludes(json);
  app.add_option("--columns", options.settings.columns,
                 "TASK.METRIC=Heading ..., or TASK[part of the data's description].METRIC=Heading; default: the main metrics")
      ->needs(paper);
  app.add_option("--baseline", options.settings.baseline, "row from which the others are tested to differ")->needs(paper);
  app.add_option("--ignore", options.settings.ignored,
                 "settings, apart from the seed, in which the runs of a row may differ: start.weights")
      ->needs(paper);
  tessera::tools::add_default(app, "--digits", options.settings.digits, "digits after the point of a percentage")
      ->needs(paper)->check(CLI::Range(0, 6));
  app.footer(
      "Examples:\n"
      "  tessera-report runs/shapes_clip runs/shapes_sparc --out comparison.html\n"
      "  tessera-report runs/*/ --out all.html\n"
      "  tessera-report runs/a/evaluation other_model/evaluation --json\n"
      "  tessera-report --paper runs/*/ --baseline clip --out table.tex --columns zero_shot.top1=ImageNet");
  if (const auto code = tessera::tools::parse_arguments(app, argc, argv)) return *code;
  return tessera::run_program("tessera-report", [&] { return report(options); });
}
