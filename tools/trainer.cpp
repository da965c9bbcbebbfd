#include <csignal>
#include <iostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <tessera/base/error.h>
#include <tessera/io/atomic_file.h>
#include <tessera/training/config.h>
#include <tessera/training/dry_run.h>
#include <tessera/training/interrupt.h>
#include <tessera/training/trainer.h>

namespace {

constexpr const char* kFooter =
    R"(The run's folder (run.folder, runs/NAME) holds config.yaml (all settings spelt out), log.txt, metrics.jsonl (one row per
log.every_steps), checkpoints/step_N/ with checkpoints/latest, and evaluation/step_N.json.

Examples:
  trainer --config configs/shapes_sparc.yaml
  trainer --config configs/shapes_sparc.yaml --set optimizer.lr=5e-4 --set run.name=slow --resume auto
  trainer --config configs/sparc_vitb16.yaml --dry-run

Ctrl-C or SIGTERM: finishes the step, saves, leaves (a second one: at once).
Exit codes: 0 finished; 1 internal error; 2 a mistake in configuration, files or arguments (one line says which); 3 stopped
because a loss was not finite; 130 or 143 stopped by SIGINT or SIGTERM with the state saved.
All settings: docs/configuration.md.)";

int run(const std::string& config_path, const std::vector<std::string>& overrides, const std::string& resume,
        bool print, bool dry) {
  const tessera::Config config = tessera::load_config(config_path, overrides);
  if (print) {
    std::cout << tessera::to_yaml(config);
    return 0;
  }
  if (dry) {
    std::cout << tessera::to_text(tessera::measure_step(config));
    return 0;
  }
  tessera::Trainer trainer(config, resume);
  switch (trainer.run()) {
    case tessera::Outcome::finished:
      return 0;
    case tessera::Outcome::interrupted:
      return 128 + tessera::interrupted();
    case tessera::Outcome::not_finite:
      return 3;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::string config, resume = "none", document;
  std::vector<std::string> overrides;
  bool print = false, dry = false;
  CLI::App app("Trains an image-text model from a YAML configuration.");
  app.footer(kFooter);
  app.add_option("--config", config, "configuration file")->type_name("FILE");
  app.add_option("--set", overrides, "override one key, KEY=VALUE (VALUE is YAML); may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app.add_option("--resume", resume,
                 "none: start afresh, in a folder without checkpoints (default); auto: go on from the run's newest "
                 "whole checkpoint, if there is one; "
                 "or a checkpoint or run folder")
      ->type_name("auto|none|PATH");
  app.add_flag("--print-config", print, "print the configuration with every default spelt out, and leave");
  app.add_flag("--dry-run", dry, "build model and data, run one step, print parameters, FLOPs and memory, and leave");
  app.add_option("--write-configuration-doc", document, "write docs/configuration.md to this file, and leave")
      ->type_name("FILE");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : 2;
  }
  return tessera::run_program("trainer", [&] {
    if (!document.empty()) {
      tessera::io::write_file(document, tessera::configuration_document());
      return 0;
    }
    if (config.empty()) tessera::user_error("--config FILE is missing; trainer --help shows an example");
    return run(config, overrides, resume, print, dry);
  });
}
