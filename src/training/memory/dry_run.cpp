#include <cmath>
#include <iomanip>
#include <sstream>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/data/image/training_views.h>
#include <tessera/measure/step_meter.h>
#include <tessera/training/memory/dry_run.h>
#include <tessera/training/memory/example_page.h>
#include <tessera/training/run/epochs.h>
#include <tessera/training/run/run_evaluation.h>
#include <tessera/training/run/training_run.h>

namespace tessera {
namespace {

// "pictures of 224 x 224, texts of 55 tokens out of 32,000, for data/train: no such file".
std::string synthetic_samples(const TrainingRun& run, const Config& config, const std::string& reason) {
  std::string out;
  for (const auto& [name, size] : image_view_sizes(config.model.preprocessing, config.data.loader, run.needs))
    out += concat(name, " ", size.height, " x ", size.width, ", ");
  for (const auto& [name, view] : run.needs.texts) {
    const Encoder& encoder = run.model->text_tower().encoder();
    out +=
        concat(name, " of ", encoder.context_length(), " tokens out of ", with_thousands(encoder.vocab_size()), ", ");
  }
  return out + "for " + reason;
}

// "7.39 G multiply-adds"; FLOPs are 2 each.
std::string multiply_adds(double flops) {
  std::ostringstream out;
  const bool giga = flops >= 2e9;
  out << std::fixed << std::setprecision(2) << flops / (giga ? 2e9 : 2e6) << (giga ? " G" : " M") << " multiply-adds";
  return out.str();
}

// 0: training.epochs of data that cannot be read here.
std::int64_t steps_of(const Config& config, bool readable, const PlanSettings& settings) {
  if (config.training.epochs && !readable) return 0;
  return with_steps(config, settings.ranks).training.steps;
}

constexpr std::int64_t kExamples = 12, kLeastOfEach = 3;  // of all data sets, and of each of several

std::vector<TrainingExample> examples_of(const TrainingRun& run, const Config& config) {
  const std::int64_t sets = std::ssize(run.train->mixing().components);
  return training_examples(run.train, run.tokenizer, config.model.preprocessing, config.data.loader, run.needs,
                           static_cast<std::uint64_t>(config.seed), std::max(kLeastOfEach, kExamples / sets));
}

// A few of each data set: the page has more.
std::vector<TrainingExample> few(const std::vector<TrainingExample>& examples) {
  const bool several = !examples.empty() && examples.front().source != examples.back().source;
  std::map<std::string, int> taken;
  std::vector<TrainingExample> out;
  for (const TrainingExample& example : examples)
    if (taken[example.source]++ < (several ? 2 : 5)) out.push_back(example);
  return out;
}

std::string describe_steps(std::int64_t steps, const std::optional<double>& epochs) {
  if (!epochs) return with_thousands(steps);
  return concat(steps > 0 ? with_thousands(steps) : "not known without the data", " (training.epochs ", *epochs, ")");
}

}  // namespace

DryRunReport dry_run(const Config& config, const PlanSettings& settings) {
  std::string unreadable;
  TrainingRun run = build_training_run(config, {}, &unreadable);
  DryRunReport report;
  if (run.loader) {
    make_loader(run, config, {settings.rank, settings.ranks});  // is there a batch for every rank?
    report.sources = run.loader->batches_per_update();
    report.data = run.train->describe();
    report.examples = examples_of(run, config);
  } else {
    report.synthetic = synthetic_samples(run, config, unreadable);
  }
  check_evaluation(run, config, &report.unread_tasks);
  report.tasks = std::ssize(config.evaluation.tasks) - std::ssize(report.unread_tasks);
  load_initial_weights(*run.model, *run.objective, config.start);
  report.parameters = count_parameters(run);
  report.steps = steps_of(config, run.train != nullptr, settings);
  report.memory = plan_memory(run, config, settings);
  return report;
}

std::string numbers_text(const DryRunReport& report, const Config& config) {
  std::ostringstream out;
  const MemoryPlan& plan = report.memory;
  const std::int64_t batch = config.data.loader.batch_size, accumulation = config.training.accumulation;
  const auto of_sample = [&](double flops) { return format_flops(flops / static_cast<double>(batch)); };
  out << "parameters        " << describe(report.parameters) << "\n"
      << "FLOPs per sample  " << of_sample(plan.total_flops) << " forward and backward, "
      << of_sample(plan.forward_flops)
      << " forward (matrix products, convolutions and attention; 2 per multiply-add; loss included)\n"
      << "towers forward    " << multiply_adds(plan.tower_flops) << " per sample"
      << (plan.avoided_flops > 0 ? concat("; ", multiply_adds(plan.tower_flops + plan.avoided_flops),
                                          " as papers count them, with every slot's keys made for every token")
                                 : "")
      << "\n"
      << "steps             " << describe_steps(report.steps, config.training.epochs) << "\n"
      << "samples a step    " << with_thousands(batch * accumulation * report.sources * plan.ranks) << ": batch "
      << batch << " x accumulation " << accumulation
      << (report.sources > 1 ? concat(" x sources ", report.sources) : "") << " x ranks " << plan.ranks
      << "; the towers see " << plan.micro_batch << " at a time"
      << (config.training.micro_batch.automatic ? " (micro_batch: auto)" : "") << "\n";
  if (report.tasks > 0) out << "evaluation tasks  " << report.tasks << " fit their data\n";
  for (const std::string& task : report.unread_tasks) out << "not looked at     " << task << "\n";
  if (!report.synthetic.empty()) out << "synthetic samples " << report.synthetic << "\n";
  out << "first " << std::left << std::setw(12) << plan.samples << "samples through forward and backward in "
      << format_duration(plan.seconds) << ", loss " << plan.sample_loss
      << (std::isfinite(plan.sample_loss) ? "" : " (not finite!)") << "\n"
      << to_text(plan, config);
  return out.str();
}

std::string to_text(const DryRunReport& report, const Config& config) {
  const std::string texts = to_text(few(report.examples));
  return numbers_text(report, config) +
         (texts.empty() ? ""
                        : "captions as training reads them (with their pictures: --dry-run-page FILE.html)\n" + texts);
}

}  // namespace tessera
