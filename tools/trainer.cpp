#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <tessera/base/error.h>
#include <tessera/distributed/spawn.h>
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

  trainer --config configs/shapes_sparc.yaml --nproc 2
  torchrun --nproc-per-node 8 --nnodes 4 ... --no-python trainer --config configs/sparc_vitb16.yaml
  srun trainer --config configs/sparc_vitb16.yaml --resume auto

Several processes train one model, one on each GPU: start one trainer per process with torchrun, srun or mpirun, which tell
each its rank, or let --nproc start them on this machine. data.loader.batch_size counts per process.

Ctrl-C, SIGTERM or SIGUSR1: finishes the step, saves, leaves (a second one: at once).
Exit codes: 0 finished; 1 internal error; 2 a mistake in configuration, files or arguments (one line says which); 3 stopped
because a loss was not finite; 130, 143 or 138 stopped by SIGINT, SIGTERM or SIGUSR1 with the state saved. With --nproc: that
of the first process that failed.
All settings: docs/configuration.md.)";

int run(const std::string& config_path, const std::vector<std::string>& overrides, const std::string& resume,
        bool print, bool dry, const tessera::LaunchEnvironment& launched) {
  const tessera::Config config = tessera::load_config(config_path, overrides);
  if (print) {
    std::cout << tessera::to_yaml(config);
    return 0;
  }
  if (dry) {
    std::cout << tessera::to_text(tessera::measure_step(config));
    return 0;
  }
  const auto group = tessera::ProcessGroup::connect(launched, config.distributed, tessera::trains_on_gpu(config));
  const tessera::InterruptGuard guard;  // from here on: a signal during start-up is served after the first step
  tessera::Trainer trainer(config, resume, group);
  switch (trainer.run()) {
    case tessera::Outcome::finished:
      return 0;
    case tessera::Outcome::interrupted:
      return 128 + trainer.stop_signal();
    case tessera::Outcome::not_finite:
      return 3;
  }
  return 0;
}

// The arguments for the processes that --nproc starts.
std::vector<std::string> without_nproc(int argc, char** argv) {
  std::vector<std::string> out;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--nproc")
      ++i;
    else if (!word.starts_with("--nproc="))
      out.push_back(word);
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  std::string config, resume = "none", document;
  std::vector<std::string> overrides;
  bool print = false, dry = false;
  int processes = 1;
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
  app.add_option("--nproc", processes, "train in so many processes on this machine (GPUs: one each)")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
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
  const char* rank = std::getenv("RANK");
  return tessera::run_program(rank == nullptr ? "trainer" : std::string("trainer rank ") + rank, [&] {
    if (!document.empty()) {
      tessera::io::write_file(document, tessera::configuration_document());
      return 0;
    }
    if (config.empty()) tessera::user_error("--config FILE is missing; trainer --help shows an example");
    const tessera::Variables variables = tessera::environment_variables();
    if (processes > 1 && !print && !dry) {
      if (variables.contains("RANK") || variables.contains("WORLD_SIZE"))
        tessera::user_error(
            "--nproc starts processes, but a launcher has set RANK or WORLD_SIZE already: leave one out");
      tessera::load_config(config, overrides);  // a mistake is reported once, not by every process
      return tessera::spawn_workers("trainer", processes, without_nproc(argc, argv));
    }
    return run(config, overrides, resume, print, dry,
               print || dry ? tessera::LaunchEnvironment() : tessera::launch_environment(variables));
  });
}
