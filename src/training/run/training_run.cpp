#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <tuple>

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "src/base/machine_memory.h"
#include "src/data/image/image_views.h"
#include "src/models/autocast.h"
#include "src/foreign/foreign_model.h"
#include "src/foreign/open_clip.h"
#include "src/models/room.h"
#include "src/models/setting_differences.h"
#include "src/remote/local_copy.h"
#include "src/remote/store.h"
#include "src/training/config/published_towers.h"
#include "src/training/run/adapted_parameters.h"
#include "src/training/run/image_features.h"
#include "src/training/run/stored_teachers.h"
#include "src/training/run/training_run.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/random.h>
#include <tessera/base/text.h>
#include <tessera/objectives/contrastive_objective.h>
#include <tessera/objectives/make_objective.h>

namespace tessera {
namespace {

// Sets LibTorch's arithmetic modes for the whole process.
void set_arithmetic(const TrainingSettings& settings) {
  at::Context& context = at::globalContext();
  context.setAllowTF32CuBLAS(settings.tf32);
  context.setAllowTF32CuDNN(settings.tf32);
  context.setDeterministicAlgorithms(settings.deterministic, /*warn_only=*/false);
  context.setDeterministicCuDNN(settings.deterministic);
  context.setDeterministicFillUninitializedMemory(false);
  // cuBLAS reads this variable when a thread uses cuBLAS for the first time. With a fixed workspace per stream, its order of summation is
  // deterministic.
  if (settings.deterministic) ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
}

void check_tokenizer(const Config& config, const TrainingRun& run) {
  if (!run.tokenizer || !run.model->has_text_tower()) return;
  const std::int64_t room = run.model->text_tower().encoder().vocab_size();
  if (room == 0 || run.tokenizer->vocab_size() <= room) return;
  const config::Node* node = config.model.text->encoder.settings.find("vocab_size");
  config::fail(node != nullptr ? *node : config.tokenizer->settings, "model.text.encoder.vocab_size",
               concat("is ", room, ", but the tokenizer ", run.tokenizer->name(), " has ", run.tokenizer->vocab_size(),
                      " tokens: leave it out to follow the tokenizer"));
}

// Checks that the model provides what the objective needs.
void check_needs(const Config& config, const TrainingRun& run) {
  if (!run.needs.texts.empty() && !(run.model->has_text_tower() && config.tokenizer))
    user_error("objective: needs the text ", run.needs.texts.begin()->first, ", but ",
               run.model->has_text_tower() ? "tokenizer" : "model.text", " is null");
  for (const auto& [name, view] : run.needs.images)
    if (view.regions && run.model->image_tower().encoder().region_width() == 0)
      user_error("objective: needs the region features ", name,
                 ", but the image encoder does not accept any: set model.image.encoder.regions");
  if (config.evaluation.weights == "teacher" && (!run.needs.teacher() || run.needs.teacher_model))
    user_error("evaluation.weights is teacher, but the objective ", config.objective.name,
               run.needs.teacher() ? " learns from a model that is not trained" : " has none", ": set it to model");
  if (run.needs.teacher() && run.needs.teacher_model == "")
    user_error("objective: distill needs a model to learn from: set objective.teacher to a model file, a run's folder or a folder of a "
               "published model");
  if (run.needs.teacher() && run.needs.teacher_model && config.data.features)
    user_error("data.features: a batch then has no images for objective.teacher, which needs them: set data.features to null");
}

// Checks that the image tower accepts every view size other than the model's own, by encoding one image of each size.
void check_view_sizes(const Config& config, const TrainingRun& run) {
  std::set<std::pair<std::int64_t, std::int64_t>> known = {
      {config.model.preprocessing.image_size.height, config.model.preprocessing.image_size.width}};
  const at::NoGradGuard no_grad;
  run.model->eval();
  for (const auto& [name, size] : image_view_sizes(config.model.preprocessing, config.data.loader, run.needs)) {
    if (!known.emplace(size.height, size.width).second) continue;
    try {
      run.model->encode_image(
          at::zeros({1, 3, size.height, size.width}, at::TensorOptions(run.device).dtype(at::kByte)));
    } catch (const c10::Error& error) {
      user_error("data.loader.views: the image tower does not accept ", name, ", which is ", size.height, " x ",
                 size.width, " pixels: ", error.what_without_backtrace());
    }
  }
  run.model->train();
}

// Opens the data and the vocabulary. If something cannot be read, stores the reason in `unreadable`, or throws if `unreadable` is null.
void open_data(const Config& config, TrainingRun& run, Unreadable* unreadable) {
  const auto open = [&](std::string Unreadable::*place, const auto& make) {
    try {
      make();
    } catch (const UserError& error) {
      if (unreadable == nullptr) throw;
      unreadable->*place = error.what();
    }
  };
  remote::use_settings(config.data.cache);
  open(&Unreadable::train, [&] { run.train = sources().make(config.data.train, "data.train"); });
  if (config.data.validation)
    open(&Unreadable::validation,
         [&] { run.validation = sources().make(*config.data.validation, "data.validation"); });
  if (config.tokenizer)
    open(&Unreadable::tokenizer,
         [&] { run.tokenizer = tokenizers().make(*config.tokenizer, "tokenizer", TokenizerContext{}); });
}

// Checks that the images of one batch fit into memory.
void check_batch(const Config& config, const Needs& needs) {
  double bytes = 0;
  for (const auto& [name, size] : image_view_sizes(config.model.preprocessing, config.data.loader, needs))
    bytes += 3 * static_cast<double>(size.height) * static_cast<double>(size.width) * static_cast<double>(config.data.loader.batch_size);
  if (const auto free = static_cast<double>(free_memory()); bytes > free)
    user_error("data.loader.batch_size is ", config.data.loader.batch_size, config.training.global_batch ? " (from training.global_batch)" : "",
               ": the images of one batch need ", format_bytes(bytes),
               " of memory, but this machine has only ", format_bytes(free), " free: make it smaller");
}

constexpr std::uint64_t kAdapterSeed = 1;  // adapters have their own random stream, so that they do not change the other initial weights

std::pair<std::shared_ptr<DualEncoder>, std::shared_ptr<Objective>> build_model_and_objective(
    const Config& config, const at::Device& device) {
  auto model = std::make_shared<DualEncoder>(config.model);
  auto objective = make_objective(config.objective, "objective", objective_context(*model));
  model->to(device);
  objective->to(device);
  if (config.training.residual == "bfloat16") model->image_tower().encoder().set_residual_type(at::kBFloat16);
  adapt(*model, config.adapt, derive_seed(config.seed, Purpose::initialization, {kAdapterSeed}));
  return {std::move(model), std::move(objective)};
}

// Returns the settings that determine the number of parameters.
config::Node sizes_of(const Config& config) {
  config::Node model = config::dump(config.model);
  model.erase("preprocessing");
  return config::Node::map({{"model", std::move(model)}, {"objective", config.objective.settings}});
}

std::shared_ptr<Optimizer> make_sharded_optimizer(const Config& config, const std::vector<NamedParameter>& parameters,
                                                  const ProcessGroup& group) {
  std::shared_ptr<Optimizer> optimizer = make_optimizer(config, parameters);
  if (const std::string& shard = config.distributed.shard; shard != "none")
    optimizer->shard(group, config.distributed.bucket_mb, shard == "gradients");
  return optimizer;
}

// Returns tensors of the sizes that a rank keeps.
std::vector<at::Tensor> gradients_and_moments(const Config& config, const std::vector<NamedParameter>& parameters,
                                              const ProcessGroup& group) {
  const std::shared_ptr<Optimizer> optimizer = make_sharded_optimizer(config, parameters, group);
  std::vector<at::Tensor> out;
  for (const auto& [name, moment] : optimizer->state()) out.push_back(moment);
  const std::int64_t shares = optimizer->gradient_shards() ? group.size() : 1;
  for (const NamedParameter& parameter : parameters)
    out.push_back(at::empty({parameter.tensor.numel() / shares}, parameter.tensor.options()));
  return out;
}

// Returns the trainable parameters by their names in checkpoints. The model's parameters have OpenCLIP's names; the objective's parameters
// have the names of objective_name().
std::vector<NamedParameter> trainable_parameters(const DualEncoder& model, const Objective& objective) {
  std::map<const void*, std::string> names;
  for (const auto& [name, tensor] : model.state_dict()) names.emplace(tensor.data_ptr(), name);
  std::vector<NamedParameter> out;
  std::set<const void*> seen;
  const std::map<std::string, std::int64_t> blocks_behind = model.blocks_behind();
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    const auto blocks = blocks_behind.find(name);
    if (tensor.requires_grad() && seen.insert(tensor.data_ptr()).second)
      out.push_back({.name = name, .tensor = tensor, .blocks_behind = blocks == blocks_behind.end() ? 0 : blocks->second});
  };
  for (const auto& item : model.named_parameters()) {
    const auto found = names.find(item.value().data_ptr());
    add(found != names.end() ? found->second : item.key(), item.value());
  }
  for (const auto& item : objective.named_parameters()) add(objective_name(item.key()), item.value());
  return out;
}

}  // namespace

std::shared_ptr<Optimizer> make_optimizer(const Config& config, const std::vector<NamedParameter>& parameters) {
  std::shared_ptr<Optimizer> optimizer = optimizers().make(config.optimizer, "optimizer", parameters);
  if (config.training.moments == "bfloat16") optimizer->round_moments(derive_seed(static_cast<std::uint64_t>(config.seed), Purpose::moments));
  return optimizer;
}

ParameterCount count_parameters(const TrainingRun& run) {
  ParameterCount out = count_parameters(*run.model, run.objective.get());
  out.trained = 0;
  for (const NamedParameter& parameter : run.optimizer->parameters()) *out.trained += parameter.tensor.numel();
  return out;
}

std::vector<at::Tensor> collect_buffers(const TrainingRun& run) {
  std::vector<at::Tensor> out = run.model->buffers(), more = run.objective->buffers();
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

void load_weights(DualEncoder& model, Objective& objective, const std::map<std::string, at::Tensor>& weights,
                  const std::string& origin) {
  const at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> own = objective_state(objective);
  std::map<std::string, at::Tensor> towers;
  for (const auto& [name, tensor] : weights) {
    const auto mine = own.find(name);
    if (mine == own.end()) {
      if (name.starts_with("objective.")) user_error(origin, ": holds ", name, ", which this objective does not have");
      towers[name] = tensor;
      continue;
    }
    if (mine->second.sizes() != tensor.sizes())
      user_error(origin, ": ", name, " has shape ", tensor.sizes(), ", expected ", mine->second.sizes());
    mine->second.copy_(tensor);
    own.erase(mine);
  }
  if (!own.empty()) user_error(origin, ": lacks the objective's ", own.begin()->first);
  model.load_state(towers, origin);
}

namespace {

/// Returns those tensors of the model's state that are adapters, or those that are not. Published files contain no adapters.
NamedTensors part_of_state(const DualEncoder& model, bool adapters) {
  NamedTensors out = model.state_dict();
  std::erase_if(out, [&](const auto& item) { return is_adapter(item.first) != adapters; });
  return out;
}

struct InitialWeights {
  std::map<std::string, at::Tensor> weights;
  std::string path;
  std::optional<KnownSettings> settings{};
  std::string vocabulary{};  // the bytes of the tokenizer file; empty if unknown
};

/// Loads the tensors of a Tessera model, an OpenCLIP file or a published folder.
InitialWeights initial_weights(const std::string& given, const std::string& state, const DualEncoder& model) {
  if (is_open_clip_checkpoint(given) || is_foreign_folder(given)) {
    const std::string path = is_foreign_folder(given) ? given : find_open_clip_weights(given);
    return {published_tensors(path, part_of_state(model, /*adapters=*/false), state), path, published_settings(path, state)};
  }
  const std::string path = find_model_file(given);
  if (!state.empty()) user_error("start.state is ", state, ", but ", path, " has only one set of weights: leave it out");
  ModelFile file = load_model_file(path);
  const KnownSettings settings{resolve(file.model, path), whole_tokenizer(file.tokenizer)};
  return {std::move(file.weights), path, settings, std::move(file.vocabulary)};
}

/// Returns a warning that lists the run's settings that differ from those of the weights at `path`; nothing if none differ.
std::vector<std::string> unlike_the_weights(const TrainingRun& run, const Config& config, const std::optional<KnownSettings>& known,
                                            ComparedTowers towers, const std::string& path) {
  if (!known) return {};
  std::vector<std::string> differences = setting_differences(run.model->settings(), known->model, towers);
  if (towers.text && known->tokenizer && config.tokenizer) {
    using Tokenizers = config::Value<config::ModuleSettings>;
    const auto more = setting_differences(Tokenizers::dump(*config.tokenizer), Tokenizers::dump(*known->tokenizer), "tokenizer");
    differences.insert(differences.end(), more.begin(), more.end());
  }
  if (differences.empty()) return {};
  return {concat(path, ": the run has other settings than its weights: ", join_names(differences))};
}

/// Rejects an objective's word counts (a list of integers) if they were made for another vocabulary. Such counts would be meaningless, and
/// a user would not expect the counts to start silently from zero.
void check_counts(const std::string& name, const at::Tensor& own, const InitialWeights& stored,
                  const Tokenizer* tokenizer) {
  const at::Tensor& theirs = stored.weights.at(name);
  if (theirs.is_floating_point() || theirs.dim() != 1) return;
  constexpr const char* kPartsWayOut = ": start from only the towers (start.parts: [image, text])";
  if (theirs.sizes() != own.sizes())
    user_error(stored.path, ": ", name, " counts ", theirs.numel(), " words, but this run's vocabulary has ",
               own.numel(), kPartsWayOut);
  if (tokenizer != nullptr && !stored.vocabulary.empty() && stored.vocabulary != tokenizer->vocabulary_bytes())
    user_error(stored.path, ": ", name, " counts the words of a different vocabulary than the file that tokenizer names",
               kPartsWayOut);
}

/// Returns true if a stored tensor fits a tensor of the objective. OpenCLIP may store logit_scale and logit_bias with shape [1].
bool fits(const at::Tensor& own, const at::Tensor& stored) {
  return own.sizes() == stored.sizes() || (own.numel() == 1 && stored.numel() == 1);
}

/// Returns a line for each number of the objective that weights of both towers should have but lack.
std::vector<std::string> missing_temperature(const Objective& objective, const NamedTensors& found, const std::string& path) {
  std::vector<std::string> out;
  const auto own = objective_state(objective);
  for (const char* name : {"logit_scale", "logit_bias"})
    if (own.contains(name) && !found.contains(name))
      out.push_back(concat(path, ": has no ", name, ", which starts with the objective's ", own.at(name).item<float>()));
  return out;
}

/// Copies the temperature of the model in a published folder. Used only if both towers come from this folder, because the temperature was
/// trained for the cosines between these two towers. Returns a line for each number that the folder lacks.
std::vector<std::string> begin_temperature(const TrainingRun& run, const std::string& folder, const std::string& state) {
  const NamedTensors found = published_tensors(remote::local_copy(folder), run.model->state_dict(), state);
  std::map<std::string, at::Tensor> own = objective_state(*run.objective);
  const at::NoGradGuard no_grad;
  for (const char* name : {"logit_scale", "logit_bias"}) {
    const auto theirs = found.find(name);
    if (theirs == found.end() || !own.contains(name)) continue;
    own.at(name).copy_(theirs->second.view(own.at(name).sizes()));
    log::info("starts with ", name, " ", own.at(name).item<double>(), " from ", folder);
  }
  return missing_temperature(*run.objective, found, folder);
}

/// Applies the bounds of learned temperatures that hold after every step, because the first step would overflow with a temperature of
/// exp(100). Returns a line for each that was out of bounds. Frozen ones have no bounds. `origin` is where they come from.
std::vector<std::string> bound_temperatures(const Objective& objective, const std::string& origin) {
  std::vector<std::string> out;
  const at::NoGradGuard no_grad;
  for (auto& [name, tensor] : objective_state(objective)) {
    if (!name.ends_with("logit_scale") || tensor.numel() != 1 || !tensor.requires_grad()) continue;
    const double stored = tensor.item<double>(), logarithm = log_of_scale(stored), bounded = std::clamp(logarithm, 0.0, kLargestLogitScale);
    if (!(std::abs(stored - bounded) > 1e-4)) continue;
    tensor.fill_(bounded);
    const char* fault = stored != logarithm ? " is the factor, not its logarithm" : stored > bounded ? " is beyond ln(100)" : " is below 0";
    out.push_back(concat(origin, ": ", name, " ", stored, fault, ": the run starts with ", bounded));
  }
  return out;
}

/// Replaces the tensors of a tower by those of a published folder. Tensors that the folder lacks keep their random values, and the log
/// lists them. Returns warnings.
std::vector<std::string> begin_tower(TrainingRun& run, const Config& config, const config::FilePath& folder, bool image) {
  const std::string copy = remote::local_copy_of(folder);
  DualEncoder& model = *run.model;
  NamedTensors towers = model.state_dict();
  NamedTensors found = published_tensors(copy, part_of_state(model, /*adapters=*/false), config.start.state);
  std::vector<std::string> random;
  for (auto& [name, own] : towers) {
    if (is_image_parameter(name) != image || is_adapter(name)) continue;
    if (const auto theirs = found.find(name); theirs != found.end())
      own = theirs->second;
    else
      random.push_back(name);
  }
  model.load_state(towers, folder.name, log::Level::info);
  log::info("starts with the ", image ? "image" : "text", " tower of ", folder.name,
            random.empty() ? std::string() : concat("; still random: ", join_names(random)));
  const auto known = published_settings(copy, config.start.state);
  return unlike_the_weights(run, config, known, {.image = image, .text = !image}, folder.name);
}

/// Replaces the tensors that the file start.weights has. Returns warnings.
std::vector<std::string> begin_weights(TrainingRun& run, const Config& config) {
  const StartSettings& start = config.start;
  DualEncoder& model = *run.model;
  const Objective& objective = *run.objective;
  const InitialWeights stored = initial_weights(remote::local_copy_of(*start.weights), start.state, model);
  const std::string& path = stored.path;
  const auto wanted = [&](const std::string& name) {
    return start.parts.empty() || std::any_of(start.parts.begin(), start.parts.end(),
                                              [&](const std::string& part) { return matches(part, name); });
  };
  std::map<std::string, at::Tensor> towers = model.state_dict(), own = objective_state(objective);
  if (start.parts.empty()) towers = part_of_state(model, /*adapters=*/true);  // model files contain no adapters, so adapters keep their values
  std::int64_t taken = 0;
  ComparedTowers of{.image = false, .text = false};
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : stored.weights) {
    if (!wanted(name)) continue;
    if (of_objective(name) && own.contains(name)) check_counts(name, own.at(name), stored, run.tokenizer.get());
    if (!of_objective(name)) {
      towers[name] = tensor;
      (is_image_parameter(name) ? of.image : of.text) = true;
    } else if (const auto mine = own.find(name); mine != own.end() && fits(mine->second, tensor)) {
      mine->second.copy_(tensor.view_as(mine->second));
    } else {
      continue;  // skips a stored tensor that does not fit this objective; the objective's tensor keeps its initial value
    }
    ++taken;
  }
  if (taken == 0) user_error(path, ": holds none of the parts that start.parts names");
  model.load_state(towers, path, log::Level::info);
  log::info("starts with ", taken, " tensors of ", path);
  std::vector<std::string> out = unlike_the_weights(run, config, stored.settings, of, path);
  if (of.text && run.tokenizer && !stored.vocabulary.empty() && stored.vocabulary != run.tokenizer->vocabulary_bytes())
    out.push_back(path + ": its text tower was trained with a different vocabulary than the file that tokenizer names");
  if (start.parts.empty() && of.image && of.text)
    for (std::string& line : missing_temperature(objective, stored.weights, path)) out.push_back(std::move(line));
  return out;
}

}  // namespace

std::vector<std::string> load_initial_weights(TrainingRun& run, const Config& config) {
  const StartSettings& start = config.start;
  std::vector<std::string> out;
  const auto add = [&](const std::vector<std::string>& lines) { out.insert(out.end(), lines.begin(), lines.end()); };
  if (start.image) add(begin_tower(run, config, *start.image, true));
  if (start.text) add(begin_tower(run, config, *start.text, false));
  if (start.image && start.text && start.image->name == start.text->name) add(begin_temperature(run, start.image->name, start.state));
  if (start.weights) add(begin_weights(run, config));
  const auto& from = start.weights ? start.weights : start.image;
  add(bound_temperatures(*run.objective, from ? from->name : "objective"));
  return out;
}

int gpu_of(int local_rank, int visible) {
  if (visible == 1) return 0;
  if (local_rank >= visible)
    user_error("local rank ", local_rank, " has no GPU: this process sees ", visible,
               ": start as many processes as GPUs, or set training.device to cpu");
  return local_rank;
}

at::Device choose_device(const Config& config, int local_rank) {
  const bool gpu = at::hasCUDA();
  if (config.training.device == "cuda" && !gpu)
    user_error("training.device is cuda, but LibTorch sees no GPU here: set it to auto or cpu");
  if (!gpu || config.training.device == "cpu") return at::kCPU;
  const c10::impl::VirtualGuardImpl gpus(at::kCUDA);
  const at::Device device(at::kCUDA, static_cast<at::DeviceIndex>(gpu_of(local_rank, gpus.deviceCount())));
  gpus.setDevice(device);
  return device;
}

TrainingRun build_training_run(const Config& config, const ProcessGroup& group, Unreadable* unreadable) {
  TrainingRun run;
  run.device = choose_device(config, group.local_rank());
  set_arithmetic(config.training);
  if (config.training.threads) at::set_num_threads(static_cast<int>(*config.training.threads));

  open_data(config, run, unreadable);

  at::manual_seed(derive_seed(config.seed, Purpose::initialization));
  std::tie(run.model, run.objective) = build_model_and_objective(config, run.device);
  check_tokenizer(config, run);
  run.needs = run.objective->needs();
  check_needs(config, run);
  check_view_sizes(config, run);
  std::vector<NamedParameter> parameters = trainable_parameters(*run.model, *run.objective);
  parameters = apply_rules_and_adapt(std::move(parameters), *run.model, config.parameters, config.adapt);
  if (config.data.features) run.features = open_image_features(config, run);
  if (config.data.features && config.data.features->texts) run.text_features = open_text_features(config, run);
  if (run.device.is_cpu())
    check_room("gradients and the optimizer's moments", "", sizes_of(config),
               [&] { return gradients_and_moments(config, parameters, group); });
  run.optimizer = make_sharded_optimizer(config, parameters, group);
  run.optimizer->zero_grad();  // allocates the moments, before anything is recorded
  if (config.training.ema) run.ema.emplace(collect_weights(*run.model, *run.objective), *config.training.ema);
  if (is_taught(run.needs)) run.teachers = open_teachers(config, run.needs);
  if (run.needs.teacher() && run.needs.teacher_model) {
    run.teacher = load_teacher(*run.needs.teacher_model, config.model.preprocessing, run.tokenizer.get(), run.device);
  } else if (run.needs.teacher()) {
    auto [model, objective] = build_model_and_objective(config, run.device);
    run.teacher.emplace(make_teacher(std::move(model), std::move(objective), *run.model, *run.objective));
  }
  if (!run.train || (config.tokenizer && !run.tokenizer)) return run;
  if (unreadable == nullptr && !run.features) check_batch(config, run.needs);  // a dry run never loads a whole batch
  // Each rank has its own file for skipped samples. On network disks, lines that several processes append to one file may get mixed up.
  const std::string of_rank = group.first() ? "" : concat(".rank", group.rank());
  run.loader = make_loader(run, config, {group.rank(), group.size()},
                           concat(config.run.path(), "/skipped", of_rank, ".jsonl"));
  return run;
}

namespace {

bool gives_text_tokens(const Needs& needs) {
  return std::ranges::any_of(needs.texts, [](const auto& view) { return view.second.tokens || view.second.dense; });
}

}  // namespace

std::unique_ptr<Loader> make_loader(const TrainingRun& run, const Config& config, const RankSlice& shard,
                                    const std::string& skipped_file) {
  LoaderTarget target;
  target.pinned = run.device.is_cuda();
  target.skipped_file = skipped_file;
  target.region_width = run.model->image_tower().encoder().region_width();
  // Texts keep their full length if shapes must be fixed. Shapes must be fixed if a CUDA graph records the step, or if ranks gather each
  // other's tokens.
  target.whole_texts = config.training.cuda_graph || (shard.count > 1 && gives_text_tokens(run.needs));
  target.features = run.features;
  target.text_features = run.text_features;
  target.teachers = run.teachers;
  target.reported = run.reported;
  target.batches_of_run = config.training.steps * config.training.accumulation;
  return std::make_unique<Loader>(run.train, run.tokenizer, config.model.preprocessing, config.data.loader, run.needs,
                                  static_cast<std::uint64_t>(config.seed), shard, target);
}

Features encode_student(TrainingRun& run, const Batch& batch, const std::string& precision) {
  const PrecisionScope scope(run.device, precision);
  return run.model->forward(batch, run.needs);
}

void add_teacher_features(TrainingRun& run, const Batch& batch, const std::string& precision, Features& features) {
  if (!run.teacher) return;
  const PrecisionScope scope(run.device, precision);
  add_teacher_features(*run.teacher, batch, run.needs, features);
}

Features encode_batch(TrainingRun& run, const Batch& batch, const std::string& precision) {
  Features features = encode_student(run, batch, precision);
  add_teacher_features(run, batch, precision, features);
  return features;
}

Losses forward_loss(TrainingRun& run, const Batch& batch, const std::string& precision, const StepContext& context) {
  return run.objective->forward(encode_batch(run, batch, precision), context);
}

StepContext step_context(const TrainingRun& run, const Config& config, const ProcessGroup& group, std::int64_t step) {
  StepContext context;
  context.step = step;
  context.seed = static_cast<std::uint64_t>(config.seed);
  context.total_steps = config.training.steps;
  if (run.loader) context.epoch = run.loader->epoch();
  context.group = group;
  if (run.teacher) {
    context.teacher = run.teacher->objective.get();
    context.teacher_scale = run.teacher->scale;
  }
  return context;
}

}  // namespace tessera
