#include <iostream>

#include <nlohmann/json.hpp>

#include "src/measure/machine.h"
#include "tests/reference/compare.h"
#include "tools/command_line.h"
#include <tessera/base/error.h>

namespace {

struct Arguments {
  std::vector<std::string> paths;
  std::string device = "cpu";
  std::string dtype = "float32";
  bool json = false;
  bool brief = false;
  bool list = false;
};

tessera::probe::RunOptions options_of(const Arguments& arguments) {
  tessera::probe::RunOptions options;
  options.device = tessera::parse_device(arguments.device);
  options.dtype = arguments.dtype == "float64"    ? at::kDouble
                  : arguments.dtype == "bfloat16" ? at::kBFloat16
                                                  : at::kFloat;
  return options;
}

int run(const Arguments& arguments) {
#ifdef TESSERA_WITH_DATA
  const tessera::probe::Runners runners = tessera::probe::all_runners();
#else
  const tessera::probe::Runners runners = tessera::probe::core_runners();
#endif
  if (arguments.list) {
    for (const std::string& name : runners.names()) std::cout << name << "\n";
    return 0;
  }
  const tessera::probe::RunOptions options = options_of(arguments);
  nlohmann::json reports = nlohmann::json::array();
  int cases = 0, agreeing = 0, mistakes = 0;
  for (const std::string& path : arguments.paths) {
    for (const std::string& file : tessera::probe::case_files(path)) {
      try {
        const tessera::probe::CaseReport report = tessera::probe::run_file(file, runners, options);
        ++cases;
        agreeing += report.agrees() ? 1 : 0;
        if (arguments.json)
          reports.push_back(to_json(report));
        else
          std::cout << format_table(report, arguments.brief) << std::flush;
      } catch (const tessera::UserError& error) {  // the other files are still checked
        ++mistakes;
        std::cerr << "tessera-probe: " << error.what() << std::endl;
      }
    }
  }
  if (arguments.json)
    std::cout << reports.dump(1) << std::endl;
  else
    std::cout << agreeing << " of " << cases << " cases agree" << std::endl;
  if (mistakes > 0) return 2;
  if (cases == 0) tessera::user_error("no reference case found in the paths given");
  return agreeing == cases ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Rebuilds registered modules from reference cases and compares their outputs and gradients.\n"
      "A tensor agrees if max|ours - theirs| <= rtol * (1 + max|theirs|); integers must be equal.\n"
      "Exit codes: 0 all agree; 1 some differ; 2 a case could not be read or run.");
  Arguments arguments;
  app.add_option("paths", arguments.paths, "reference cases (.safetensors, .json, .jsonl), or folders with such files");
  tessera::tools::add_default(app, "--device", arguments.device, "auto, cpu, cuda or cuda:N");
  tessera::tools::add_default(app, "--dtype", arguments.dtype,
                              "type of the inputs; bfloat16 runs under autocast and allows 100 times the tolerance")
      ->check(CLI::IsMember({"float32", "float64", "bfloat16"}));
  app.add_flag("--json", arguments.json, "print the comparison as JSON");
  app.add_flag("--brief", arguments.brief, "print only the tensors that differ");
  app.add_flag("--list", arguments.list, "print the names of the modules that can be checked");
  const auto check = [&] {
    if (arguments.paths.empty() && !arguments.list) throw CLI::RequiredError("paths");
  };
  if (const auto code = tessera::tools::parse_arguments(app, argc, argv, check)) return *code;
  return tessera::run_program("tessera-probe", [&] { return run(arguments); });
}
