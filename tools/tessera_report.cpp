#include <filesystem>
#include <iostream>

#include <nlohmann/json.hpp>

#include "src/base/dump_utf8.h"
#include "src/report/comparison.h"
#include "tools/command_line.h"
#include <tessera/base/error.h>
#include <tessera/io/atomic_file.h>

namespace {

struct ReportOptions {
  std::vector<std::string> runs;
  std::string out;
  bool json = false;
};

int report(const ReportOptions& options) {
  if (std::filesystem::is_directory(options.out))
    tessera::user_error("--out ", options.out, ": is a folder; name a file, such as --out ",
                        (std::filesystem::path(options.out) / "comparison.html").string());
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
  app.add_option("--out", options.out, "self-contained HTML page to write; an existing file is overwritten");
  app.add_flag("--json", options.json, "print the comparison as JSON instead of tables");
  app.footer(
      "Examples:\n"
      "  tessera-report runs/shapes_clip runs/shapes_sparc --out comparison.html\n"
      "  tessera-report runs/*/ --out all.html\n"
      "  tessera-report runs/a/evaluation other_model/evaluation --json");
  if (const auto code = tessera::tools::parse_arguments(app, argc, argv)) return *code;
  return tessera::run_program("tessera-report", [&] { return report(options); });
}
