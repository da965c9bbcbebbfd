#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "src/training/interrupt.h"
#include "src/training/memory/dry_run.h"
#include "src/training/memory/example_page.h"
#include "src/training/non_finite/non_finite.h"
#include "src/training/run/epochs.h"
#include "src/training/run/image_features.h"
#include "src/training/run/stored_teachers.h"
#include "src/training/run/training_run.h"
#include "src/training/stages.h"
#include "tools/open_clip/recipe.h"
#include "tools/trainer_arguments.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/distributed/spawn.h>
#include <tessera/io/atomic_file.h>
#include <tessera/training/config/config.h>
#include <tessera/training/trainer_main.h>

namespace {

constexpr int kNotFinite = 3;

// Returns the settings for the plan of a dry run. The plan covers one of the requested ranks.
tessera::PlanSettings plan_settings(const tessera::tools::TrainerArguments& arguments,
                                    const tessera::LaunchEnvironment& launched, const tessera::Variables& variables) {
  tessera::PlanSettings settings;
  settings.ranks_here = std::max(arguments.processes, launched.size);
  settings.ranks = launched.alone() ? settings.ranks_here * tessera::nodes_of(variables).count : launched.size;
  for (const char* name : {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE"})
    if (const auto found = variables.find(name); found != variables.end())
      settings.ranks_here = std::clamp(std::atoi(found->second.c_str()), 1, settings.ranks);
  return settings;
}

void write_example_page(const std::string& file, const tessera::DryRunReport& report, const tessera::Config& config) {
  if (report.examples.empty())
    tessera::user_error("--dry-run-page ", file, ": there are no samples to show, only synthetic ones: ", report.synthetic);
  tessera::io::write_file(file, tessera::example_page(report.examples, "dry run of " + config.run.name.value_or("run"), report.data,
                                                      tessera::numbers_text(report, config)));
}

// Returns the text of a dry run of a stage. Also writes a page with samples to the file `page`, unless `page` is empty or the stage starts
// from the weights of the previous stage.
std::string dry_run_text(const tessera::Stage& stage, const tessera::PlanSettings& settings, const std::string& page) {
  tessera::Config config = stage.config;
  config = tessera::with_rank_batch(std::move(config), settings.ranks);
  if (stage.follows) config.start = {};  // the weights of the previous stage may not exist yet
  const tessera::DryRunReport report = tessera::dry_run(config, settings);
  const std::string text = tessera::to_text(report, config);
  if (page.empty() || stage.follows) return text;
  write_example_page(page, report, config);
  return text + "page              " + page + "\n";
}

// Returns the configuration as YAML. If training.epochs is set and the data can be read, training.steps is computed from the epochs.
std::string config_text(const tessera::Stage& stage, int ranks) {
  try {
    return tessera::to_yaml(tessera::with_steps(stage.config, ranks));
  } catch (const tessera::UserError& error) {
    tessera::log::warning(error.what(), "; the number of steps that training.epochs takes is not known");
    return tessera::to_yaml(stage.config);
  }
}

void tell_of_features(const tessera::FeatureManifest& written, const std::string& folder, const char* unit) {
  for (const auto& [reason, count] : written.left_out)
    std::cout << "left out " << tessera::with_thousands(count) << " samples (" << reason << ")\n";
  std::cout << "written: " << folder << ", " << tessera::with_thousands(written.samples) << " " << unit << " of "
            << tessera::format_bytes(static_cast<double>(written.bytes())) << std::endl;
}

// Writes the features for the first stage that reads features, and the embeddings for the first stage that reads those of teachers.
int write_features(const std::vector<tessera::Stage>& stages) {
  const auto first = [&](const auto& reads) -> const tessera::Config& {
    const auto found = std::find_if(stages.begin(), stages.end(), [&](const auto& stage) { return reads(stage.config.data); });
    return (found != stages.end() ? *found : stages.front()).config;
  };
  const tessera::Config& taught = first([](const auto& data) { return data.teachers.has_value(); });
  const tessera::Config& stored = first([](const auto& data) { return data.features.has_value(); });
  if (taught.data.teachers) tell_of_features(tessera::write_teachers(taught), taught.data.teachers->folder, "crops");
  if (stored.data.features || !taught.data.teachers)
    tell_of_features(tessera::write_image_features(stored), stored.data.features->folder, "images");
  return 0;
}

// Loads the stages. With --dry-run or --print-config, an unreadable vocabulary file is not an error.
std::vector<tessera::Stage> stages_of(const tessera::tools::TrainerArguments& arguments) {
  const auto load = [&](bool without_vocabulary) {
    return tessera::load_stages(arguments.config, arguments.overrides, without_vocabulary);
  };
  if (!arguments.print_config) return load(/*without_vocabulary=*/arguments.dry_run);
  try {
    return load(false);
  } catch (const tessera::UserError& error) {
    std::vector<tessera::Stage> stages = load(true);
    std::cerr << "note: " << error.what()
              << "; sizes that depend on the vocabulary are shown as without one\n";
    return stages;
  }
}

int run(const tessera::tools::TrainerArguments& arguments, const tessera::Variables& variables) {
  const std::vector<tessera::Stage> stages = stages_of(arguments);
  const auto for_each_stage = [&](const auto& text_of) {
    for (const tessera::Stage& stage : stages) {
      if (!stage.name.empty()) std::cout << "--- # stage " << stage.name << "\n";
      std::cout << text_of(stage);
    }
    return 0;
  };
  const tessera::LaunchEnvironment launched = tessera::launch_environment(variables);
  if (launched.rank == 0) tessera::warn_of_stages(stages);
  if (arguments.print_config) {
    const int ranks = plan_settings(arguments, launched, variables).ranks;
    return for_each_stage([&](const tessera::Stage& stage) { return config_text(stage, ranks); });
  }
  if (arguments.dry_run) {
    if (launched.rank != 0) return 0;
    const tessera::PlanSettings settings = plan_settings(arguments, launched, variables);
    return for_each_stage([&](const tessera::Stage& stage) { return dry_run_text(stage, settings, arguments.dry_run_page); });
  }
  if (arguments.write_features) {
    if (launched.size > 1 || arguments.processes > 1)
      tessera::user_error("--write-features works in one process: leave out --nproc, or the launcher");
    return write_features(stages);
  }
  // The device is chosen first, so that starting the process group does not open another GPU.
  const at::Device device = tessera::choose_device(stages[0].config, launched.local_rank);
  const auto group = tessera::ProcessGroup::connect(launched, stages[0].config.distributed, device);
  if (!arguments.replay_step.empty()) {
    const auto [report, finite] = tessera::replay_step(stages.back().config, arguments.replay_step, group);
    if (group.first()) std::cout << report;
    return finite ? 0 : kNotFinite;
  }
  // installed before the start-up, so that a signal during the start-up does not kill the process but stops the run after the first step
  const tessera::InterruptGuard guard;
  const auto [outcome, signal] = tessera::run_stages(stages, {arguments.resume, arguments.allowed_changes}, group);
  switch (outcome) {
    case tessera::Outcome::finished:
      return 0;
    case tessera::Outcome::interrupted:
      return 128 + signal;
    case tessera::Outcome::not_finite:
      return kNotFinite;
  }
  return 0;
}

}  // namespace

namespace tessera {

int trainer_main(int argc, char** argv) {
  tools::TrainerArguments arguments;
  if (const auto code = tools::parse(argc, argv, arguments)) return *code;
  const std::string& program = arguments.program;
  const char* rank = std::getenv("RANK");
  return run_program(rank == nullptr ? program : concat(program, " rank ", rank), [&] {
    if (!arguments.document.empty()) {
      io::write_file(arguments.document, configuration_document());
      return 0;
    }
    if (!arguments.from_open_clip.empty()) {
      std::cout << tools::open_clip::recipe_of(arguments.from_open_clip);
      return 0;
    }
    if (arguments.config.empty()) user_error("--config FILE is missing; ", program, " --help shows an example");
    if (!arguments.allowed_changes.empty() && arguments.resume == "none")
      user_error("--allow-changes lists settings that a resumed run may change: also give --resume auto or a checkpoint");
    const Variables variables = environment_variables();
    const bool on_several_machines = !variables.contains("RANK") && nodes_of(variables).count > 1;
    if ((arguments.processes > 1 || on_several_machines) && !arguments.print_config && !arguments.dry_run && !arguments.write_features) {
      if (variables.contains("RANK") || variables.contains("WORLD_SIZE"))
        user_error("--nproc starts processes, but a launcher has set RANK or WORLD_SIZE already: leave one out");
      // checked here, so that a mistake is reported once, not by every process
      for (const Stage& stage : load_stages(arguments.config, arguments.overrides))
        with_rank_batch(stage.config, arguments.processes * nodes_of(variables).count);
      return spawn_workers(program, arguments.processes, arguments_without("--nproc", argc, argv));
    }
    return run(arguments, variables);
  });
}

}  // namespace tessera
