#include <cmath>
#include <iomanip>
#include <set>
#include <sstream>

#include "src/data/image/image_views.h"
#include "src/measure/machine.h"
#include "src/measure/step_meter.h"
#include "src/training/log/advice.h"
#include "src/training/memory/dry_run.h"
#include "src/training/memory/example_page.h"
#include "src/training/run/epochs.h"
#include "src/training/run/run_evaluation.h"
#include "src/training/run/training_run.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

// Describes the synthetic samples, as in "image 224 x 224, caption of 55 tokens out of 32,000, for data/train: no such file". In this
// example, 32,000 is the vocabulary size, and the text after "for" is the reason why the samples are synthetic.
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

// Formats FLOPs as multiply-adds, which are 2 FLOPs each: "7.39 G multiply-adds".
std::string multiply_adds(double flops) {
  const bool giga = flops >= 2e9;
  return fixed(flops / (giga ? 2e9 : 2e6), 2) + (giga ? " G" : " M") + " multiply-adds";
}

// Returns the training settings with the number of steps filled in. The number is 0 if it follows from training.epochs but the data cannot
// be read.
TrainingSettings length_of(const Config& config, bool readable, const PlanSettings& settings) {
  if (!config.training.epochs || readable) return with_steps(config, settings.ranks).training;
  TrainingSettings unknown = config.training;
  unknown.steps = 0;
  return unknown;
}

std::optional<std::string> epochs_warning(const TrainingRun& run, const TrainingSettings& length) {
  const auto caption = run.needs.texts.find("caption");
  if (!run.train || caption == run.needs.texts.end() || caption->second.optional) return std::nullopt;
  const std::int64_t bad = run.train->captionless();
  return shorter_epochs(length, run.train->size() - bad, bad);
}

constexpr std::int64_t kExamples = 12, kLeastOfEach = 3;  // number of examples in total, and minimum number per data set

std::vector<TrainingExample> read_examples(const TrainingRun& run, const Config& config) {
  const std::int64_t sets = std::ssize(run.train->mixing().components);
  return training_examples(run.train, run.tokenizer, config.model.preprocessing, config.data.loader, run.needs,
                           static_cast<std::uint64_t>(config.seed), std::max(kLeastOfEach, kExamples / sets));
}

constexpr std::int64_t kLooked = 128;  // number of samples that are read; enough for the loader's check of the share of bad samples

// Returns a warning if a run would stop soon after its start, because too many samples are unusable.
std::optional<std::string> unusable_samples(const TrainingRun& run, Config config, const RankSlice& slice) {
  config.data.loader.batch_size = std::min<std::int64_t>(32, config.data.loader.batch_size);
  try {
    const auto loader = make_loader(run, config, slice);
    do {
      loader->next();
    } while (loader->statistics().samples < kLooked && loader->epoch() == 0);
  } catch (const UserError& error) {
    return concat("a run would stop: ", error.what());
  }
  return std::nullopt;
}

// Returns a few examples of each data set, for the terminal. The HTML page shows more.
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
  return concat(steps > 0 ? with_thousands(steps) : "unknown without the data", " (training.epochs ", *epochs, ")");
}

// Returns warnings about unreadable data. A reason that applies to several tasks is reported only once.
std::vector<std::string> reading_warnings(const Unreadable& unreadable, const std::vector<UnreadTask>& tasks) {
  std::vector<std::string> out;
  std::set<std::string> reported;
  const auto tell = [&](const std::string& what, const std::string& reason) {
    if (!reason.empty() && reported.insert(reason).second) out.push_back(concat(what, ": ", reason));
  };
  tell("a run would not start, because its training data cannot be read", unreadable.train);
  tell("a run would not start, because its vocabulary cannot be read", unreadable.tokenizer);
  tell("a run would not start, because its validation data cannot be read", unreadable.validation);
  for (const auto& [place, reason] : tasks) tell(place + " was not checked", reason);
  return out;
}

}  // namespace

DryRunReport dry_run(const Config& given, const PlanSettings& settings) {
  Config config = given;
  const at::Device device = choose_device(config, 0);
  const std::int64_t memory = whole_memory(device) / (device.is_cpu() ? settings.ranks_here : 1);
  const std::string chunks = settle_chunks(config, settings.ranks, settings.available.value_or(memory));
  if (!chunks.empty()) log::info(chunks);
  Unreadable unreadable;
  TrainingRun run = build_training_run(config, {}, &unreadable);
  DryRunReport report;
  if (run.loader) {
    make_loader(run, config, {settings.rank, settings.ranks});  // throws if there is less than one batch per rank
    report.sources = run.loader->batches_per_update();
    report.data = run.train->describe();
    report.examples = read_examples(run, config);
  } else {
    report.synthetic = synthetic_samples(run, config, unreadable.train.empty() ? unreadable.tokenizer : unreadable.train);
  }
  report.unread_tasks = check_evaluation(run, config, &unreadable);
  report.tasks = std::ssize(config.evaluation.tasks) - std::ssize(report.unread_tasks);
  const std::vector<std::string> start_warnings = load_initial_weights(run, config);
  report.parameters = count_parameters(run);
  const TrainingSettings length = length_of(config, run.train != nullptr, settings);
  report.steps = length.steps;
  report.memory = plan_memory(run, config, settings);
  report.warnings = reading_warnings(unreadable, report.unread_tasks);
  if (run.loader)
    if (const auto line = unusable_samples(run, config, {settings.rank, settings.ranks})) report.warnings.push_back(*line);
  Config planned = config;
  planned.training = length;
  for (const auto& lines : {start_warnings, start_advice(run, planned, settings.ranks)})
    report.warnings.insert(report.warnings.end(), lines.begin(), lines.end());
  if (const auto line = epochs_warning(run, length)) report.warnings.push_back(*line);
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
      << " forward (matrix products, convolutions and attention; 2 per multiply-add; loss included"
      << (plan.text_tokens > 0 ? concat("; with texts of ", plan.text_tokens, " tokens") : "") << ")\n"
      << "towers forward    " << multiply_adds(plan.tower_flops) << " per sample"
      << (plan.avoided_flops > 0 ? concat("; ", multiply_adds(plan.tower_flops + plan.avoided_flops),
                                          " as papers count, which compute the keys of every slot for every token")
                                 : "")
      << "\n"
      << "steps             " << describe_steps(report.steps, config.training.epochs) << "\n"
      << "samples per step  " << with_thousands(batch * accumulation * report.sources * plan.ranks) << ": batch "
      << batch << " x accumulation " << accumulation
      << (report.sources > 1 ? concat(" x sources ", report.sources) : "") << " x ranks " << plan.ranks
      << "; the towers process " << plan.micro_batch << " at a time"
      << (config.training.micro_batch.automatic ? " (micro_batch: auto)" : "") << "\n";
  if (report.tasks > 0) out << "evaluation tasks  " << report.tasks << " fit their data\n";
  for (const auto& [place, reason] : report.unread_tasks) out << "not checked       " << place << ": " << reason << "\n";
  if (!report.synthetic.empty()) out << "synthetic samples " << report.synthetic << "\n";
  out << "tried " << std::left << std::setw(12) << plan.samples << "samples through forward and backward in "
      << format_duration(plan.seconds) << ", loss " << plan.sample_loss
      << (std::isfinite(plan.sample_loss) ? "" : " (not finite!)") << "\n"
      << to_text(plan, config);
  return out.str();
}

std::string to_text(const DryRunReport& report, const Config& config) {
  std::string out = numbers_text(report, config);
  const std::string texts = to_text(few(report.examples));
  if (!texts.empty()) out += "captions as training reads them (with their images: --dry-run-page FILE.html)\n" + texts;
  for (const std::string& line : report.warnings) out += concat("warning: ", line, "\n");
  return out;
}

}  // namespace tessera
