#include <filesystem>
#include <iostream>
#include <regex>

#include "tools/command_line.h"
#include "tools/open_clip/flags.h"
#include "tools/trainer_arguments.h"
#include <tessera/base/error.h>
#include <tessera/config/shipped.h>

namespace tessera::tools {
namespace {

constexpr const char* kFooter =
    R"(The run's folder (run.folder, runs/NAME) holds config.yaml (with every setting), log.txt, metrics.jsonl (one row per
log.every_steps), tensorboard/ (the same for TensorBoard), checkpoints/step_N/ with checkpoints/latest, and evaluation/step_N.json.

Examples:
  trainer --config shapes_sparc
  trainer --config configs/shapes/sparc.yaml --set optimizer.lr=5e-4 --set run.name=slow --resume auto
  trainer --config configs/sparc/vitb16.yaml --dry-run --set training.micro_batch=auto

  trainer --config configs/shapes/sparc.yaml --nproc 2
  torchrun --nproc-per-node 8 --nnodes 4 ... --no-python trainer --config configs/sparc/vitb16.yaml --set training.global_batch=16384
  srun trainer --config configs/sparc/vitb16.yaml --set training.global_batch=16384 --resume auto

Several processes train one model, one process per GPU: start one trainer per process with torchrun, srun or mpirun, which
set the rank of each, or let --nproc start them on this machine. training.global_batch is the batch size of all processes together;
without it, data.loader.batch_size is the batch size per process.

Ctrl-C, SIGTERM, SIGUSR1 or SIGHUP (a closed terminal; not under nohup): finishes the step, saves and exits (a second one: at once).
Exit codes: 0 finished; 1 internal error; 2 a mistake in configuration, files or arguments (one line names it); 3 stopped
because a loss or gradient was not finite; 130, 143, 138 or 129 stopped by SIGINT, SIGTERM, SIGUSR1 or SIGHUP with the state saved.
With --nproc: the exit code of the first process that failed.
All settings: )";

std::string name_of_program(int argc, char** argv) {
  const std::string name = argc > 0 ? std::filesystem::path(argv[0]).filename().string() : "";
  return name.empty() ? "trainer" : name;
}

/// Returns an error message for words that belong to no option. For each flag of OpenCLIP's open_clip_train, the message has a line with
/// the flag's counterpart in Tessera.
std::string describe_words(const std::vector<std::string>& extra, const std::vector<std::string>& line, const std::vector<std::string>& options) {
  std::vector<std::string> rest;
  try {
    const std::string answer = open_clip::answer_to_flags(extra, rest);
    if (answer.empty()) return describe_extra_words(extra, line, options);
    return concat("these are flags of OpenCLIP's open_clip_train; a run here is a YAML file, whose keys --set overrides:\n", answer,
                  rest.empty() ? "" : describe_extra_words(rest, line, options) + "\n",
                  "--from-open-clip params.txt prints the YAML of a whole run; ", config::documentation("from_open_clip.md"), " lists all flags");
  } catch (const UserError& error) {
    return error.what();
  }
}

}  // namespace

std::optional<int> parse(int argc, char** argv, TrainerArguments& arguments) {
  arguments.program = name_of_program(argc, argv);
  CLI::App app("Trains an image-text model from a YAML configuration.");
  app.footer(std::regex_replace(kFooter, std::regex("trainer --"), arguments.program + " --") + config::documentation("configuration.md"));
  app.add_option("--config", arguments.config, "YAML file, or the name of one that ships with Tessera (--list-configs)")
      ->type_name("FILE");
  add_overrides(app, "--set", arguments.overrides, "override a key");
  app.add_option("--resume", arguments.resume,
                 "none: start from the beginning, in a folder without checkpoints (default); auto: resume from the run's newest "
                 "complete checkpoint, or the one that checkpoint.fetch_command fetches, if there is one; "
                 "or a checkpoint or run folder")
      ->type_name("auto|none|PATH");
  app.add_option("--allow-changes", arguments.allowed_changes,
                 concat("with --resume: settings that may differ from the checkpoint's, each including all settings below it (such as "
                        "optimizer.lr, or data.train for other data); ", config::documentation("training.md"),
                        " lists the settings that may always change"))
      ->type_name("KEY,...")
      ->delimiter(',');
  app.add_option("--nproc", arguments.processes, "train in this many processes on this machine (one GPU each)")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  std::optional<int> threads;
  add_threads(app, threads);
  bool list_configs = false;
  app.add_flag("--list-configs", list_configs, "list the configurations that ship with Tessera by folder, one per line, and exit");
  app.add_flag("--print-config", arguments.print_config, "print the configuration including all defaults, and exit");
  app.add_flag("--dry-run", arguments.dry_run,
               "build model and data, run a few samples (synthetic ones if there is no data), print parameters, FLOPs and "
               "the memory plan of a step (with --nproc: of each rank), and exit");
  app.add_option("--dry-run-page", arguments.dry_run_page,
                 "like --dry-run; also write a page with some augmented training images and their captions as the tokenizer reads them")
      ->type_name("FILE.html");
  app.add_flag("--write-features", arguments.write_features,
               "encode each training image once with the frozen image encoder, write the results to data.features.folder, from "
               "which training then reads them, and exit");
  app.add_option("--replay-step", arguments.replay_step,
                 "recompute the step after a saved state, check each operator's result, print those that are not finite, and exit")
      ->type_name("RUN/non_finite/step_N");
  app.add_option("--from-open-clip", arguments.from_open_clip,
                 "print the YAML of a run of OpenCLIP's open_clip_train, from params.txt of its log folder, and exit")
      ->type_name("params.txt");
  bool open_clip_flags = false;
  app.add_flag("--open-clip-flags", open_clip_flags,
               "print a Markdown table of all flags of open_clip_train and their counterparts in Tessera, and exit");
  app.add_option("--write-configuration-doc", arguments.document, "write the text of docs/configuration.md to this file, and exit")
      ->type_name("FILE");
  const auto code = parse_arguments(app, argc, argv, [&] {
    if (arguments.resume == "latest") throw CLI::ValidationError("--resume", "use auto instead of OpenCLIP's latest");
  }, describe_words);
  if (threads) {  // --threads is inserted first, so that a --set of individual thread counts takes precedence
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

}  // namespace tessera::tools
