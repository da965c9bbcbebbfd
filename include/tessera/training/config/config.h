#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include <tessera/config/file_path.h>
#include <tessera/config/registry.h>
#include <tessera/data/loading/loader.h>
#include <tessera/distributed/process_group.h>
#include <tessera/models/adaptation.h>
#include <tessera/models/dual_encoder.h>
#include <tessera/optim/ema.h>
#include <tessera/optim/parameter_rules.h>
#include <tessera/optim/schedule.h>

namespace tessera {

/// Where a run keeps its files.
struct RunSettings {
  std::optional<std::string> name;
  std::optional<std::string> folder;
};

template <class Visitor>
void fields(Visitor& v, RunSettings& s) {
  v("name", s.name, "null: the configuration file's name without .yaml");
  v("folder", s.folder, "the run's own folder, relative to the working folder; null: runs/NAME");
}

/// Features of the training pictures, kept on disk.
struct FeatureSettings {
  config::OutputPath folder;
  std::string dtype = "float32";
};

template <class Visitor>
void fields(Visitor& v, FeatureSettings& s) {
  v("folder", s.folder, "where they lie");
  v("dtype", s.dtype, "as what trainer --write-features keeps them",
    config::one_of({"float32", "bfloat16", "float16"}));
}

/// Features need a folder.
std::optional<config::Problem> validate(const FeatureSettings& settings);

struct DataSettings {
  config::ModuleSettings train;
  std::optional<config::ModuleSettings> validation;
  std::optional<FeatureSettings> features;
  LoaderSettings loader;
};

template <class Visitor>
void fields(Visitor& v, DataSettings& s) {
  v("train", s.train, "source of the training pairs; {name: mixture, ...} for several");
  v("validation", s.validation, "source for evaluation tasks that name none of their own");
  v("features", s.features,
    "what the frozen image encoder gives for the training pictures, computed once by trainer --write-features and read "
    "in "
    "their place: {folder: FOLDER, dtype: float32}; null: pictures go through the encoder at each step");
  v("loader", s.loader, "batches and augmentation");
}

/// Weights to begin with, instead of random ones.
struct StartSettings {
  std::optional<config::FilePath> weights;
  std::vector<std::string> parts;
  std::optional<config::FilePath> image, text;
};

template <class Visitor>
void fields(Visitor& v, StartSettings& s) {
  v("weights", s.weights,
    "model file, checkpoint, run folder, a file of OpenCLIP's, or a folder of transformers' or timm's; null: random");
  v("parts", s.parts, "only these: image, text, or patterns of names; the rest stays random. Empty: all");
  v("image", s.image, "published folder whose image tower the run begins with; model.image.from sets it");
  v("text", s.text, "published folder whose text tower the run begins with; model.text.from sets it");
}

/// TrainingRun of a file need a file.
std::optional<config::Problem> validate(const StartSettings& settings);

/// training.micro_batch: how many samples of a batch the towers see at a time.
struct MicroBatch {
  bool automatic = false;               // the largest that fits; settled when the run starts
  std::optional<std::int64_t> samples;  // none: the whole batch at once

  /// The samples at a time of a batch of this size; none when the batch goes through in one pass. Not for `auto`.
  std::optional<std::int64_t> of(std::int64_t batch) const {
    return samples && *samples < batch ? samples : std::nullopt;
  }
};

/// A number, `auto` or null.
template <>
struct config::Value<MicroBatch> {
  static MicroBatch read(const Node& node, const std::string& path, const MicroBatch&);
  static Node dump(const MicroBatch& value);
  static std::string type() { return "int, auto or null"; }
};

struct TrainingSettings {
  std::int64_t steps = 1000;
  std::optional<double> epochs;
  double counted_epochs = 0;  // that `steps` were taken from (with_steps), 0: none; no setting
  std::int64_t accumulation = 1;
  MicroBatch micro_batch;
  std::string precision = "float32";
  bool tf32 = false;
  bool deterministic = false;
  bool cuda_graph = false;
  std::string non_finite = "stop";
  std::optional<double> clip_norm;
  std::string clip_mode = "global";
  std::string device = "auto";
  std::optional<std::int64_t> threads;
  std::optional<EmaSettings> ema;
};

template <class Visitor>
void fields(Visitor& v, TrainingSettings& s) {
  v("steps", s.steps, "optimizer updates of the whole run; null where epochs is set", config::at_least(1));
  v("epochs", s.epochs,
    "passes over the training data, in place of steps: the number of steps follows from the size of the data, the batch "
    "and the number of processes, and stands in the run's config.yaml; null: steps says it",
    config::above(0));
  v("accumulation", s.accumulation,
    "batches per update (of each source, with a mixture that accumulates); their losses are averaged (a contrastive "
    "loss finds its negatives within each batch, not across them)",
    config::at_least(1));
  v("micro_batch", s.micro_batch,
    "samples of a batch that the towers see at a time (GradCache): the whole batch gives the negatives, memory follows "
    "this number, time grows by a forward pass; auto: the largest that fits into the device's memory; null: all at "
    "once");
  v("precision", s.precision,
    "bf16, fp16: autocast; weights, norms, softmax and losses stay float32. fp16 with dynamic loss scaling",
    config::one_of({"float32", "bf16", "fp16"}));
  v("tf32", s.tf32, "matrix products and convolutions of float32 in TensorFloat-32, on GPUs that have it");
  v("deterministic", s.deterministic,
    "on GPUs too the same run gives the same bits: operators that add in any order take a slower form, and one without "
    "such a form ends the run with its name");
  v("cuda_graph", s.cuda_graph,
    "record forward and backward pass once and play them back, one launch a batch; for one process on a GPU, where all "
    "batches have one shape");
  v("non_finite", s.non_finite,
    "a step whose loss or gradient is not finite: stop the run, or skip the update (ten in a row stop it too)",
    config::one_of({"stop", "skip"}));
  v("clip_norm", s.clip_norm, "gradients of a greater norm are scaled down to this one; null: do not",
    config::above(0));
  v("clip_mode", s.clip_mode, "whose norm that is: global, all gradients' together; per_tensor, each parameter's alone",
    config::one_of({"global", "per_tensor"}));
  v("device", s.device, "auto takes the GPU when there is one", config::one_of({"auto", "cpu", "cuda"}));
  v("threads", s.threads, "threads of one operator on the CPU; null: one per core", config::at_least(1));
  v("ema", s.ema,
    "exponential moving average of all weights (EMA): {decay: 0.9999, warmup: true}; each checkpoint then holds "
    "ema.safetensors, a model file, too; null: none");
}

/// A way to clip needs a norm to clip to.
std::optional<config::Problem> validate(const TrainingSettings& settings);

/// How ranks meet, what they share out, and when one counts as lost.
struct RanksSettings : DistributedSettings {
  std::string compression = "none";
  bool shard_optimizer = false;
  double heartbeat = 60;
};

template <class Visitor>
void fields(Visitor& v, RanksSettings& s) {
  fields(v, static_cast<DistributedSettings&>(s));
  v("compression", s.compression, "bf16: gradients travel between ranks as bfloat16, half the bytes",
    config::one_of({"none", "bf16"}));
  v("shard_optimizer", s.shard_optimizer,
    "each rank keeps the optimizer's moments of its share of the parameters and updates these alone (ZeRO stage 1); "
    "results and checkpoints stay the same");
  v("heartbeat", s.heartbeat, "seconds without a sign of life after which a rank counts as lost and the job ends",
    config::at_least(5));
}

/// Which checkpoint is the best one.
struct KeepBestSettings {
  std::string metric;
  std::optional<std::string> mode;
};

template <class Visitor>
void fields(Visitor& v, KeepBestSettings& s) {
  v("metric", s.metric,
    "TASK.METRIC as the run's page calls it: retrieval.image_to_text_recall@1, validation_loss.loss, zero_shot.top1");
  v("mode", s.mode, "max: the greatest value is the best, min: the smallest; null: min for a loss, max for all else",
    config::one_of({"max", "min"}));
}

struct CheckpointSettings {
  std::int64_t every_steps = 1000;
  double every_minutes = 0;
  std::int64_t keep_last = 3;
  std::int64_t keep_every = 0;
  std::optional<KeepBestSettings> keep_best;
  bool background = true;
  std::optional<std::string> copy_to;
  std::optional<std::string> command;
  std::optional<std::string> fetch_command;
};

template <class Visitor>
void fields(Visitor& v, CheckpointSettings& s) {
  v("every_steps", s.every_steps, "save after so many steps; 0: only at the end", config::at_least(0));
  v("every_minutes", s.every_minutes, "save when so many minutes have passed since the last save; 0: do not",
    config::at_least(0));
  v("keep_last", s.keep_last, "checkpoints kept; older ones are deleted", config::at_least(1));
  v("keep_every", s.keep_every, "those of steps that this divides stay for good; 0: none", config::at_least(0));
  v("keep_best", s.keep_best,
    "the checkpoint that is best by a metric of the evaluation tasks stays too, and the file checkpoints/best names it: "
    "{metric: retrieval.image_to_text_recall@1}; null: age alone decides");
  v("background", s.background, "write while training goes on, from a copy of weights and optimizer in memory");
  v("copy_to", s.copy_to,
    "a second folder, say on another disk, relative to the working folder: each checkpoint is copied there; null: "
    "none");
  v("command", s.command,
    "shell command after each save, with the checkpoint's folder as $1 and run.name as $2; null: none");
  v("fetch_command", s.fetch_command,
    "shell command that brings the newest checkpoint back that `command` has stored, as step_N into the empty folder $1, "
    "run.name as $2; for --resume auto where the run's folder holds no whole one. Exit code 0 without any: nothing is stored "
    "yet; null: none");
}

struct EvaluationSettings {
  std::int64_t every_steps = 0;
  std::int64_t batch_size = 64;
  std::int64_t threads = 2;
  bool at_start = false;
  std::string weights = "model";
  std::vector<config::ModuleSettings> tasks;
};

template <class Visitor>
void fields(Visitor& v, EvaluationSettings& s) {
  v("every_steps", s.every_steps, "run the tasks after so many steps; 0: only at the end", config::at_least(0));
  v("batch_size", s.batch_size, "images at a time", config::at_least(1));
  v("threads", s.threads, "decoding threads", config::at_least(1));
  v("at_start", s.at_start, "run them before the first step, too");
  v("weights", s.weights,
    "what is measured: model, the trained weights; ema, their average (training.ema); teacher, the objective's (DINO)",
    config::one_of({"model", "ema", "teacher"}));
  v("tasks", s.tasks, "what is measured: [{name: zero_shot, ...}, ...]");
}

struct LogSettings {
  std::int64_t every_steps = 10;
  bool tensorboard = true;
  bool page = true;
  std::optional<std::string> command;
  std::optional<double> peak_tflops;
  std::optional<std::array<std::int64_t, 2>> profile;
};

template <class Visitor>
void fields(Visitor& v, LogSettings& s) {
  v("every_steps", s.every_steps, "write a row of metrics.jsonl and metrics.csv after so many steps",
    config::at_least(1));
  v("tensorboard", s.tensorboard, "write the same as TensorBoard event files, into the run's folder tensorboard");
  v("page", s.page, "keep a page with the run's curves and state, run.html in its folder");
  v("command", s.command,
    "shell command that is started with the run and reads each row and each evaluation from its standard input, a line "
    "of JSON each (python3 scripts/log_to_wandb.py my-project); null: none");
  v("peak_tflops", s.peak_tflops,
    "what the MFU is a share of, TFLOP/s of one device; null: the GPU's data sheet, or measured at the start with a "
    "matrix product",
    config::above(0));
  v("profile", s.profile,
    "[first, last] step to trace: each rank writes them into the run's folder as trace_step_N.json, for "
    "chrome://tracing "
    "or ui.perfetto.dev; null: none",
    config::at_least(1));
}

/// The last step profiled must not stand before the first.
std::optional<config::Problem> validate(const LogSettings& settings);

/// A training run: everything that a YAML file of `trainer` can say.
struct Config {
  std::int64_t seed = 0;
  RunSettings run;
  DataSettings data;
  std::optional<config::ModuleSettings> tokenizer = config::ModuleSettings{};
  ModelSettings model;
  StartSettings start;
  AdaptSettings adapt;
  config::ModuleSettings objective{.name = "clip"};
  config::ModuleSettings optimizer{.name = "adamw"};
  ParameterSettings parameters;
  ScheduleSettings schedule;
  TrainingSettings training;
  RanksSettings distributed;
  CheckpointSettings checkpoint;
  EvaluationSettings evaluation;
  LogSettings log;
};

template <class Visitor>
void fields(Visitor& v, Config& s) {
  v("seed", s.seed, "all randomness follows from it", config::at_least(0));
  v("run", s.run, "where the run's files go");
  v("data", s.data, "what is trained on");
  v("tokenizer", s.tokenizer, "text to token ids; null: none, for a model without text tower");
  v("model", s.model, "the two towers");
  v("start", s.start, "weights to begin with");
  v("adapt", s.adapt, "adapters in place of fine-tuning a tower");
  v("objective", s.objective, "the training loss");
  v("optimizer", s.optimizer, "the update rule");
  v("parameters", s.parameters, "which parameters are trained, and how fast");
  v("schedule", s.schedule, "learning rate and weight decay over the run");
  v("training", s.training, "length and arithmetic of the run");
  v("distributed", s.distributed, "several processes (torchrun, srun, mpirun or trainer --nproc N)");
  v("checkpoint", s.checkpoint, "saving");
  v("evaluation", s.evaluation, "measuring during the run");
  v("log", s.log, "what a run tells of itself");
}

/// Reads a configuration file, applies the overrides ("a.b=c") in order, checks every module's settings through its
/// registry and that the parts fit each other, and spells out every default. A text encoder that leaves out (or sets to
/// null) `vocab_size` or `context_length` takes the tokenizer's, and so does a text read-out with `special_token_ids`; of
/// the image encoder's and the preprocessing's `image_size` the one left out follows the other. Throws UserError naming
/// file, line and key.
Config load_config(const std::string& path, const std::vector<std::string>& overrides = {});

/// The same from a tree of settings; `name` is the run's name when the tree gives none. without_vocabulary: a vocabulary
/// file that cannot be read is no error, and a text encoder that would take its size keeps its own default.
Config resolve_config(const config::Node& tree, const std::string& name, bool without_vocabulary = false);

/// YAML of the whole configuration; loads back to an identical one.
std::string to_yaml(const Config& config);

/// The same with absolute paths, those of what the run writes too: for the run's own folder, from where it is read in
/// whatever working folder.
std::string to_yaml_anywhere(Config config);

/// docs/configuration.md, from the same lists of fields.
std::string configuration_document();

}  // namespace tessera
