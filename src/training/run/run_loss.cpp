#include "src/training/run/run_loss.h"

#include <limits>
#include <unordered_set>

#include <ATen/ATen.h>

#include "src/base/printable.h"
#include "src/config/environment.h"
#include "src/data/loading/reported_samples.h"
#include "src/distributed/agreement.h"
#include "src/objectives/grad_cache.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/random.h>
#include <tessera/base/text.h>
#include <tessera/objectives/make_objective.h>

namespace tessera {
namespace {

/// Switches modules to evaluation mode while an object of this class exists.
class EvaluationMode {
 public:
  explicit EvaluationMode(std::vector<torch::nn::Module*> modules) {
    for (torch::nn::Module* module : modules) {
      if (!module->is_training()) continue;
      changed_.push_back(module);
      module->eval();
    }
  }
  ~EvaluationMode() {
    for (torch::nn::Module* module : changed_) module->train();
  }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  std::vector<torch::nn::Module*> changed_;
};

/// Computes the means of named numbers. Names keep the order in which they first appeared.
class Means {
 public:
  void add(const std::string& name, const at::Tensor& value) {
    auto found = std::find_if(sums_.begin(), sums_.end(), [&](const auto& each) { return each.name == name; });
    if (found == sums_.end()) found = sums_.insert(sums_.end(), {name, 0, 0});
    found->sum += value.to(at::kDouble).item<double>();
    ++found->count;
  }
  std::vector<std::pair<std::string, double>> values() const {
    std::vector<std::pair<std::string, double>> out;
    for (const Sum& each : sums_) out.emplace_back(each.name, each.sum / static_cast<double>(each.count));
    return out;
  }

 private:
  struct Sum {
    std::string name;
    double sum;
    std::int64_t count;
  };
  std::vector<Sum> sums_;
};

// Returns loader settings that make measurements repeatable. The batches are always the same, and images are not augmented unless the
// objective needs crops.
LoaderSettings measuring_settings(const Config& config, const LossBatches& batches) {
  LoaderSettings out = config.data.loader;
  out.batch_size = batches.batch_size.value_or(out.batch_size);
  out.threads = batches.threads;
  out.prefetch = 2;
  out.shuffle = true;
  out.balance.reset();
  out.caption_choice = "first";
  out.augmentation = {};
  out.augmentation.crop = "evaluation";
  // Bad samples are skipped and counted, as in all evaluation tasks.
  out.max_bad_share = 1;
  out.max_bad_run = std::numeric_limits<std::int64_t>::max();
  return out;
}

// Joins the features of the ranks' parts of a batch, in the order of the ranks. Parts may differ in their numbers of rows.
Features of_all_ranks(const Features& own, const ProcessGroup& group) {
  std::vector<Features> pieces(static_cast<std::size_t>(group.size()), own);
  std::vector<std::vector<at::Tensor*>> tensors(pieces.size());
  for (std::size_t rank = 0; rank < pieces.size(); ++rank)
    for_each_tensor(pieces[rank], [&](at::Tensor& tensor) {
      if (tensor.defined()) tensors[rank].push_back(&tensor);
    });
  for (std::size_t k = 0; k < tensors[0].size(); ++k) {
    const at::Tensor mine = *tensors[0][k];
    const at::Tensor rows = group.all_gather(at::tensor({mine.size(0)}, at::kLong));
    const std::int64_t most = rows.max().item<std::int64_t>();
    std::vector<std::int64_t> shape = mine.sizes().vec();
    shape[0] = most - mine.size(0);
    const at::Tensor all = group.all_gather(at::cat({mine, at::zeros(shape, mine.options())}));
    for (std::size_t rank = 0; rank < pieces.size(); ++rank) {
      const auto first = static_cast<std::int64_t>(rank) * most;
      *tensors[rank][k] = all.slice(0, first, first + rows[static_cast<std::int64_t>(rank)].item<std::int64_t>());
    }
  }
  return joined(pieces);
}

// Reads the next batch, which must have the same samples on all ranks of the group.
Batch next_batch(Loader& loader, const ProcessGroup& group) {
  Batch batch;
  run_on_all_ranks(group, "reading the validation data", [&] { batch = loader.next(); });
  if (group.size() == 1) return batch;
  // Keeps 62 bits, whose negative is a number, too.
  std::uint64_t digest = static_cast<std::uint64_t>(loader.epoch());
  for (const std::string& key : batch.keys) digest = derive_seed(digest, Purpose::step, {std::hash<std::string>{}(key)});
  const auto mine = static_cast<std::int64_t>(digest >> 2);
  Agreement all(group, "reading the validation data", nullptr, {mine, -mine});
  if (all.maxima()[0] != -all.maxima()[1])
    user_error("validation_loss: the ranks have read different samples: some of them cannot read all of the data");
  return batch;
}

class LossOfParts final : public RunLoss {
 public:
  /// `parts` must have these members of a run: `device`, `tokenizer`, `model`, `objective`, `teacher` and `needs`.
  LossOfParts(TrainingRun parts, Config config, StepContext context)
      : parts_(std::move(parts)), config_(std::move(config)), context_(std::move(context)) {}

  const Needs& needs() const { return parts_.needs; }

  void check(const LossBatches& batches) const override { count_batches(*loader_for(batches), batches); }

  std::shared_ptr<Objective> objective() const override { return parts_.objective; }

  TaskResult measure(const LossBatches& batches) const override {
    std::unique_ptr<Loader> loader;
    std::int64_t count = 0;
    run_on_all_ranks(batches.group, "reading the validation data", [&] {
      loader = loader_for(batches);
      count = count_batches(*loader, batches);
    });
    const EvaluationMode evaluating({parts_.model.get(), parts_.objective.get()});
    const at::NoGradGuard no_grad;
    TaskResult result;
    result.data = batches.source->describe();
    Means means;
    const bool knows_images = !batches.source->image_ids().empty();  // then keys name the images' files
    std::unordered_set<std::string> images;
    std::int64_t rows = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const Batch batch = next_batch(*loader, batches.group);
      if (loader->epoch() > 0) break;  // the epoch had fewer batches than counted, because unreadable samples were skipped
      const Losses losses = compute_loss(batch.to(parts_.device), batches.group);
      means.add("loss", losses.total);
      for (const auto& [name, value] : losses.terms)
        if (name != "loss") means.add(name, value);
      rows += batch.size();
      if (knows_images) images.insert(batch.keys.begin(), batch.keys.end());
      result.skipped = loader->statistics().skipped;
      if (batches.progress) batches.progress(rows, count * batch.size());
    }
    result.samples = knows_images ? std::ssize(images) : rows;
    if (knows_images && !parts_.needs.texts.empty()) result.texts = rows;
    for (const auto& [name, value] : means.values()) result.add_number(name, value, MetricRule::Better::lower);
    if (!batches.group.first()) return result;
    if (batches.reported == nullptr || batches.reported->tell("validation_loss", result.data) != ReportedSamples::Tell::no)
      warn_of_skipped(result, rows);
    return result;
  }

 private:
  void warn_of_skipped(const TaskResult& result, std::int64_t rows) const {
    const std::int64_t skipped = result.skipped_total(), read = skipped + rows;
    if (static_cast<double>(skipped) > config_.data.loader.max_bad_share * static_cast<double>(read))
      log::warning("validation_loss: ", skipped, " of ", read, " samples of ", result.data,
                   " cannot be used; the loss is measured on the others");
  }

  std::unique_ptr<Loader> loader_for(const LossBatches& batches) const {
    LoaderTarget target;
    target.reported = batches.reported;
    target.region_width = parts_.model->image_tower().encoder().region_width();
    try {
      return std::make_unique<Loader>(batches.source, parts_.tokenizer, config_.model.preprocessing,
                                      measuring_settings(config_, batches), parts_.needs, /*seed=*/0, RankSlice{},
                                      target);
    } catch (const UserError& error) {
      user_error("validation_loss: ", error.what());
    }
  }

  std::int64_t count_batches(const Loader& loader, const LossBatches& batches) const {
    const std::int64_t all = loader.batches_per_epoch();
    if (batches.max_samples < 0) return all;
    const std::int64_t size = batches.batch_size.value_or(config_.data.loader.batch_size);
    if (batches.max_samples < size)
      user_error("validation_loss: max_samples is ", batches.max_samples, ", less than one batch of ", size,
                 ": set batch_size to ", batches.max_samples, " or less");
    return std::min(all, batches.max_samples / size);
  }

  Losses compute_loss(const Batch& batch, const ProcessGroup& group) const {
    at::manual_seed(0);
    if (group.size() == 1 || batch.size() < group.size()) return parts_.objective->forward(encode(batch), context_);
    const std::int64_t begin = batch.size() * group.rank() / group.size(), end = batch.size() * (group.rank() + 1) / group.size();
    Features own;
    run_on_all_ranks(group, "encoding the validation data", [&] { own = encode(slice(batch, begin, end - begin)); });
    return parts_.objective->forward(of_all_ranks(own, group), context_);
  }

  // Encodes a batch as training does: in micro-batches, if training uses them.
  Features encode(const Batch& batch) const {
    const std::string& precision = config_.training.precision;
    const auto chunk = config_.training.micro_batch.of(batch.size());
    if (!chunk) return encode_batch(parts_, batch, precision);
    const ChunkedRows rows{batch.size(), *chunk};
    std::vector<Features> pieces;
    for (std::int64_t i = 0; i < rows.count(); ++i)
      pieces.push_back(encode_batch(parts_, slice(batch, rows.first(i), rows.size(i)), precision));
    return joined(pieces);
  }

  mutable TrainingRun parts_;  // mutable, because encode_batch() takes a non-const run
  Config config_;
  StepContext context_;
};

StepContext measuring_context(const TrainingRun& run, const Config& config, std::int64_t step) {
  StepContext context = step_context(run, config, {}, step);
  context.training = false;
  return context;
}

/// Computes the loss of the run that saved the checkpoint. Builds the objective only when needed, so that tasks that do not compute the
/// loss can evaluate the model even if the objective cannot be built.
class CheckpointLoss final : public RunLoss {
 public:
  explicit CheckpointLoss(const InferenceModel& loaded) : loaded_(loaded) {}

  void check(const LossBatches&) const override {}
  TaskResult measure(const LossBatches& batches) const override {
    const LossOfParts loss = build();
    if (loss.needs().teacher() && !loss.needs().teacher_model)
      user_error("validation_loss: the objective needs a teacher, which only the run itself has: see the run's "
                 "evaluation/step_N.json for this loss");
    return loss.measure(batches);
  }
  std::shared_ptr<Objective> objective() const override { return build().objective(); }

 private:
  LossOfParts build() const {
    const config::Node settings =
        config::expand_environment(config::parse_yaml(loaded_.file.extra.at("config"), loaded_.path + " (config)"));
    check_objective(settings);
    Config config = resolve_config(settings, "run", /*without_vocabulary=*/true);
    if (config.training.device == "cpu" || loaded_.device.is_cpu()) config.training.precision = "float32";
    TrainingRun parts;
    parts.device = loaded_.device;
    parts.tokenizer = loaded_.tokenizer;
    parts.model = loaded_.model;
    parts.objective = make_objective(config.objective, "objective", objective_context(*parts.model));
    parts.objective->to(parts.device);
    parts.needs = parts.objective->needs();
    load_weights(*parts.model, *parts.objective, loaded_.file.weights, loaded_.path);
    const auto step = loaded_.file.extra.find("step");
    const StepContext at = measuring_context(parts, config, step != loaded_.file.extra.end() ? std::stoll(step->second) : 0);
    return {std::move(parts), std::move(config), at};
  }

  void check_objective(const config::Node& settings) const {
    const config::Node* chosen = settings.find("objective");
    const config::Node* name = chosen != nullptr && chosen->is_map() ? chosen->find("name") : chosen;
    if (name == nullptr || !name->is_scalar() || objectives().contains(name->text())) return;
    user_error(loaded_.path, ": unknown objective ", printable(name->text()),
               suggestion(name->text(), objectives().names()),
               ": your own objective needs the program that registers it: name the task in the run's evaluation.tasks, which "
               "writes the result to the run's evaluation/step_N.json");
  }

  const InferenceModel loaded_;
};

}  // namespace

std::shared_ptr<const RunLoss> run_loss(const TrainingRun& run, const Config& config, std::int64_t step) {
  const bool of_teacher = config.evaluation.weights == "teacher";
  TrainingRun parts;
  parts.device = run.device;
  parts.tokenizer = run.tokenizer;
  parts.model = of_teacher ? run.teacher->model : run.model;
  parts.objective = of_teacher ? run.teacher->objective : run.objective;
  parts.teacher = run.teacher;
  parts.needs = run.needs;
  return std::make_shared<LossOfParts>(std::move(parts), config, measuring_context(run, config, step));
}

std::shared_ptr<const RunLoss> checkpoint_loss(const InferenceModel& loaded) {
  if (!loaded.file.extra.contains("config")) return nullptr;
  return std::make_shared<CheckpointLoss>(loaded);
}

}  // namespace tessera
