#include <filesystem>
#include <iostream>
#include <regex>

#include "tools/command_line.h"
#include "tools/front_end.h"
#include "tools/open_clip/flags.h"
#include "tools/trainer_arguments.h"
#include <tessera/base/error.h>
#include <tessera/config/shipped.h>

namespace tessera::tools {
namespace {

constexpr const char* kFooter =
    R"(The run's folder (run.folder, runs/NAME) holds config.yaml (all settings spelt out), log.txt, metrics.jsonl (one row per
log.every_steps), tensorboard/ (the same for TensorBoard), checkpoints/step_N/ with checkpoints/latest, and evaluation/step_N.json.

Examples:
  trainer --config shapes_sparc
  trainer --config configs/shapes_sparc.yaml --set optimizer.lr=5e-4 --set run.name=slow --resume auto
  trainer --config configs/sparc_vitb16.yaml --dry-run --set training.micro_batch=auto

  trainer --config configs/shapes_sparc.yaml --nproc 2
  torchrun --nproc-per-node 8 --nnodes 4 ... --no-python trainer --config configs/sparc_vitb16.yaml
  srun trainer --config configs/sparc_vitb16.yaml --resume auto

Several processes train one model, one on each GPU: start one trainer per process with torchrun, srun or mpirun, which tell
each its rank, or let --nproc start them on this machine. data.loader.batch_size counts per process.

Ctrl-C, SIGTERM, SIGUSR1 or SIGHUP (a closed terminal; not under nohup): finishes the step, saves, leaves (a second one: at once).
Exit codes: 0 finished; 1 internal error; 2 a mistake in configuration, files or arguments (one line says which); 3 stopped
because a loss or gradient was not finite; 130, 143, 138 or 129 stopped by SIGINT, SIGTERM, SIGUSR1 or SIGHUP with the state saved.
With --nproc: that of the first process that failed.
All settings: docs/configuration.md.)";

std::string name_of_program(int argc, char** argv) {
  const std::string name = argc > 0 ? std::filesystem::path(argv[0]).filename().string() : "";
  return name.empty() ? "trainer" : name;
}

/// Flags of OpenCLIP's open_clip_train are answered with the settings here, a line each.
std::string describe_words(const std::vector<std::string>& extra, const std::vector<std::string>& line, const std::vector<std::string>& options) {
  std::vector<std::string> rest;
  try {
    const std::string answer = open_clip::answer_to_flags(extra, rest);
    if (answer.empty()) return describe_extra_words(extra, line, options);
    return concat("these are flags of OpenCLIP's open_clip_train; a run here is a YAML file, whose keys --set overrides:\n", answer,
                  rest.empty() ? "" : describe_extra_words(rest, line, options) + "\n",
                  "--from-open-clip params.txt prints the YAML of a whole run; docs/from_open_clip.md has every flag");
  } catch (const UserError& error) {
    return error.what();
  }
}

}  // namespace

std::optional<int> parse(int argc, char** argv, TrainerArguments& arguments) {
  arguments.program = name_of_program(argc, argv);
  CLI::App app("Trains an image-text model from a YAML configuration.");
  app.footer(std::regex_replace(kFooter, std::regex("trainer --"), arguments.program + " --"));
  app.add_option("--config", arguments.config, "YAML file, or the name of one that ships with Tessera (--list-configs)")
      ->type_name("FILE");
  add_overrides(app, "--set", arguments.overrides, "override a key");
  app.add_option("--resume", arguments.resume,
                 "none: start afresh, in a folder without checkpoints (default); auto: go on from the run's newest "
                 "whole checkpoint, if there is one, or what checkpoint.fetch_command brings; "
                 "or a checkpoint or run folder")
      ->type_name("auto|none|PATH");
  app.add_option("--allow-changes", arguments.allowed_changes,
                 "with --resume: settings that may be other ones than the checkpoint's, each with all below it "
                 "(optimizer.lr; data.train also for other data); docs/training.md lists those that may change anyway")
      ->type_name("KEY,...")
      ->delimiter(',');
  app.add_option("--nproc", arguments.processes, "train in so many processes on this machine (GPUs: one each)")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  std::optional<int> threads;
  add_threads(app, threads);
  bool list_configs = false;
  app.add_flag("--list-configs", list_configs, "list the configurations that ship, a line each, and leave");
  app.add_flag("--print-config", arguments.print_config, "print the configuration with every default spelt out, and leave");
  app.add_flag("--dry-run", arguments.dry_run,
               "build model and data, run a few samples (synthetic ones where there is no data), print parameters, FLOPs and "
               "the memory plan of a step (with --nproc: of each rank), and leave");
  app.add_option("--dry-run-page", arguments.dry_run_page,
                 "--dry-run, and a page of some training pictures, augmented, beside their captions as the tokenizer reads them")
      ->type_name("FILE.html");
  app.add_flag("--write-features", arguments.write_features,
               "encode each training picture once with the frozen image encoder, write that into data.features.folder, from "
               "where training then reads it, and leave");
  app.add_option("--replay-step", arguments.replay_step,
                 "compute the step after a saved state again, testing each operator's result, print what is not finite, and leave")
      ->type_name("RUN/non_finite/step_N");
  app.add_option("--from-open-clip", arguments.from_open_clip,
                 "print the YAML of a run of OpenCLIP's open_clip_train, from the file params.txt of its log folder, and leave")
      ->type_name("params.txt");
  bool open_clip_flags = false;
  app.add_flag("--open-clip-flags", open_clip_flags, "print every flag of open_clip_train with what it is here, a table in Markdown, and leave");
  app.add_option("--write-configuration-doc", arguments.document, "write docs/configuration.md to this file, and leave")
      ->type_name("FILE");
  const auto code = parse_arguments(app, argc, argv, [&] {
    if (arguments.resume == "latest") throw CLI::ValidationError("--resume", "latest, as OpenCLIP has it, is --resume auto here");
  }, describe_words);
  if (threads) {  // first: what --set says of one kind of thread wins
    const std::string number = std::to_string(*threads);
    arguments.overrides.insert(arguments.overrides.begin(),
                               {"training.threads=" + number, "data.loader.threads=" + number});
  }
  if (!arguments.dry_run_page.empty()) arguments.dry_run = true;
  if (code || (!list_configs && !open_clip_flags)) return code;
  return run_program(arguments.program, [&] {
    std::cout << (open_clip_flags ? open_clip::flag_table() : config::list_configurations());
    return 0;
  });
}

std::optional<int> answer_at_once(int argc, char** argv) {
  TrainerArguments arguments;
  return parse(argc, argv, arguments);
}

}  // namespace tessera::tools
