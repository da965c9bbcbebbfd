#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include <tessera/config/file_path.h>
#include <tessera/config/registry.h>
#include <tessera/config/samples_at_a_time.h>
#include <tessera/data/loading/loader.h>
#include <tessera/distributed/process_group.h>
#include <tessera/models/adaptation.h>
#include <tessera/models/dual_encoder.h>
#include <tessera/optim/ema.h>
#include <tessera/optim/parameter_rules.h>
#include <tessera/optim/schedule.h>
#include <tessera/remote/cache_settings.h>

namespace tessera {

/// The run's name and the folder of its files.
struct RunSettings {
  std::optional<std::string> name;
  std::optional<std::string> folder;  // resolve_config() replaces the address of a store by a local folder, and sets `mirror`
  std::optional<std::string> mirror;

  /// Returns the run's local folder, relative to the working folder.
  std::string path() const { return folder.value_or("runs/" + name.value_or("run")); }
};

void fields(auto& v, RunSettings& s) {
  v("name", s.name,
    "the run's name; null: the configuration's, sparc_vitb16 for the recipe sparc/vitb16, otherwise the file's name without .yaml");
  v("folder", s.folder,
    "the run's own folder, relative to the working folder; null: runs/NAME. s3://BUCKET/PATH or gs://BUCKET/PATH: a folder in the folder "
    "`runs` of data.cache.folder, with this address as `mirror`");
  v("mirror", s.mirror,
    "folder in a store (s3://BUCKET/PATH or gs://BUCKET/PATH) that receives the run's checkpoints, logs and results, and from which "
    "--resume auto continues on another machine; each stage has a subfolder of its name there; null: none");
}

/// Rejects stores that cannot be written, and two different ones.
std::optional<config::Problem> validate(const RunSettings& settings);

/// Vectors that another program made, in .npy files.
struct VectorFiles {
  std::optional<config::FilePath> images, texts, captions;
};

void fields(auto& v, VectorFiles& s) {
  v("images", s.images,
    "float [N, width]: a vector for each image; the images' keys are the lines of a file of the same name that ends in .keys.txt, as "
    "tessera-embed --out X.npy writes both; null: the image tower makes the features");
  v("texts", s.texts, "float [M, width]: a vector for each text; null: the text tower makes them");
  v("captions", s.captions, "the texts, one per line, in the order of the rows of `texts`");
}

/// Rejects texts without captions, and the other way around.
std::optional<config::Problem> validate(const VectorFiles& settings);

/// Precomputed features of the training images and texts.
struct FeatureSettings {
  config::OutputPath folder;
  std::string dtype = "float32";
  bool texts = false;
  std::optional<VectorFiles> vectors;
};

void fields(auto& v, FeatureSettings& s) {
  v("folder", s.folder, "folder of the features");
  v("dtype", s.dtype, "data type in which trainer --write-features stores them",
    config::one_of({"float32", "bfloat16", "float16"}));
  v("texts", s.texts,
    "also store the vectors of the texts, which the frozen encoder and read-out of the text tower give; only its projection is then "
    "computed in training");
  v("vectors", s.vectors,
    "vectors of other models that trainer --write-features stores instead of computing them, for the encoders stored_images and "
    "stored_texts: {images: X.npy, texts: Y.npy, captions: Y.txt}; null: the towers make all features");
}

/// Rejects feature settings without a folder.
std::optional<config::Problem> validate(const FeatureSettings& settings);

/// Stored embeddings of teachers.
struct StoredTeacherSettings {
  config::OutputPath folder;
  std::vector<config::FilePath> models;
  std::int64_t crops = 1;
  std::string dtype = "bfloat16";
};

void fields(auto& v, StoredTeacherSettings& s) {
  v("folder", s.folder, "folder of the embeddings");
  v("models", s.models,
    "the teachers, in the order of their embeddings' columns: model files, checkpoints, run folders, OpenCLIP checkpoints or folders of "
    "transformers models");
  v("crops", s.crops,
    "number of random crops of each image for which embeddings are stored; in each epoch training shows the next of them",
    config::in_range(1, config::kMostCount));
  v("dtype", s.dtype, "data type in which trainer --write-features stores them",
    config::one_of({"float32", "bfloat16", "float16"}));
}

/// Rejects settings of teachers without a folder or without models.
std::optional<config::Problem> validate(const StoredTeacherSettings& settings);

struct DataSettings {
  config::ModuleSettings train;
  std::optional<config::ModuleSettings> validation;
  std::optional<FeatureSettings> features;
  std::optional<StoredTeacherSettings> teachers;
  LoaderSettings loader;
  remote::CacheSettings cache;
};

void fields(auto& v, DataSettings& s) {
  v("train", s.train, "source of the training pairs; {name: mixture, ...} for several sources");
  v("validation", s.validation, "source for evaluation tasks without a source of their own");
  v("features", s.features,
    "features of the training images from the frozen image encoder, which trainer --write-features computes once and training reads "
    "instead of the images, and on request those of the texts: {folder: FOLDER, dtype: float32}; null: the encoders process images and "
    "texts at each step");
  v("teachers", s.teachers,
    "embeddings of the training images' crops and of their captions from the teachers of the objective affinity, which trainer "
    "--write-features computes once: {folder: FOLDER, models: [MODEL, ...]}; null: none");
  v("loader", s.loader, "batches and augmentation");
  v("cache", s.cache, "the local copies of remote files, whose paths begin with s3://, gs://, hf://, http:// or https://");
}

/// Weights to start from, instead of random ones.
struct StartSettings {
  std::optional<config::FilePath> weights;
  std::string state;
  std::vector<std::string> parts;
  std::optional<config::FilePath> image, text;
};

void fields(auto& v, StartSettings& s) {
  v("weights", s.weights,
    "model file, checkpoint, run folder, OpenCLIP file, or folder of a transformers or timm model; null: random weights");
  v("state", s.state,
    "key of the state dict to read, if a PyTorch file has several (such as model_ema); empty: state_dict, model_state_dict or model");
  v("parts", s.parts, "parts of the weights to load: image, text, or patterns of parameter names; the rest stays random. Empty: all "
                      "parts");
  v("image", s.image, "folder of a published model whose image tower the run starts from; model.image.from sets it");
  v("text", s.text, "folder of a published model whose text tower the run starts from; model.text.from sets it");
}

/// Rejects start.parts without start.weights.
std::optional<config::Problem> validate(const StartSettings& settings);

struct TrainingSettings {
  std::int64_t steps = 1000;
  std::optional<double> epochs;
  double counted_epochs = 0;  // not a setting: the number of epochs from which with_steps() computed `steps`; 0 if `steps` was not computed
  std::optional<std::int64_t> global_batch;
  std::int64_t accumulation = 1;
  config::SamplesAtATime micro_batch;
  std::string precision = "float32";
  std::string residual = "float32";
  std::string moments = "float32";
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

void fields(auto& v, TrainingSettings& s) {
  v("steps", s.steps, "number of optimizer updates of the whole run; null if epochs is set", config::at_least(1));
  v("epochs", s.epochs,
    "number of passes over the training data, instead of steps; the number of steps is then computed from the size of the data, the "
    "batch size and the number of processes, and recorded in the run's config.yaml; null: use steps",
    config::above(0));
  v("global_batch", s.global_batch,
    "number of samples per update on all processes together (per source, with a mixture that accumulates), instead of "
    "data.loader.batch_size, which is then this number / (processes x accumulation); a run that continues on another number of processes "
    "stays the same. DeepSpeed calls this number train_batch_size, Megatron global_batch_size; null: it follows from data.loader.batch_size",
    config::at_least(1));
  v("accumulation", s.accumulation,
    "number of batches per update (per source, with a mixture that accumulates), whose losses are averaged; a contrastive loss "
    "finds its negatives within each batch, not across batches",
    config::at_least(1));
  v("micro_batch", s.micro_batch,
    "number of samples of a batch that the towers process at a time (GradCache); negatives still come from the whole batch, "
    "activation memory depends only on this number, and each step costs an additional forward pass; auto: the largest number that "
    "fits into the device's memory; null: the whole batch at once");
  v("precision", s.precision,
    "float32; bf16 or fp16: autocast, in which weights, norms, softmax and losses stay float32. fp16 uses dynamic loss scaling",
    config::one_of({"float32", "bf16", "fp16"}));
  v("residual", s.residual,
    "type of the image encoder's residual stream (vit) under precision: bf16; bfloat16 is faster and rounds where OpenCLIP's image encoder "
    "rounds under autocast",
    config::one_of({"float32", "bfloat16"}));
  v("moments", s.moments,
    "type in which the optimizer's moments are stored; bfloat16 halves their memory, and new values are rounded up or down at random, so "
    "that small changes are not lost",
    config::one_of({"float32", "bfloat16"}));
  v("tf32", s.tf32, "compute float32 matrix products and convolutions in TensorFloat-32, on GPUs that support it");
  v("deterministic", s.deterministic,
    "make runs bit-identical on GPUs too; operators with a nondeterministic order of summation then use a slower deterministic "
    "variant, and an operator that has no such variant stops the run with an error that names it");
  v("cuda_graph", s.cuda_graph,
    "record steps as CUDA graphs and replay them with one launch per batch; needs a GPU, batches of few shapes and, with several processes, "
    "nccl and an objective that uses all trained parameters");
  v("non_finite", s.non_finite,
    "what to do if a step's loss or gradient is not finite: stop the run, or skip the update (ten skipped updates in a row also "
    "stop the run)",
    config::one_of({"stop", "skip"}));
  v("clip_norm", s.clip_norm, "scale gradients with a greater norm down to this norm; null: do not clip",
    config::above(0));
  v("clip_mode", s.clip_mode, "which norm is clipped; global: the norm of all gradients together; per_tensor: the norm of each "
                              "parameter's gradient",
    config::one_of({"global", "per_tensor"}));
  v("device", s.device, "where to train; auto: on the GPU if there is one, else on the CPU", config::one_of({"auto", "cpu", "cuda"}));
  v("threads", s.threads, "number of threads per operator on the CPU; null: one per core", config::in_range(1, config::kMostThreads));
  v("ema", s.ema,
    "keep an exponential moving average (EMA) of all weights: {decay: 0.9999, warmup: true}; each checkpoint then also holds the "
    "model file ema.safetensors; null: do not");
}

/// Rejects a clip_mode without a clip_norm, and a bfloat16 residual stream without bf16 autocast.
std::optional<config::Problem> validate(const TrainingSettings& settings);

/// How ranks connect, what they shard, and when a rank counts as lost.
struct RanksSettings : DistributedSettings {
  std::string compression = "none";
  std::string shard = "none";
  double heartbeat = 60;
};

void fields(auto& v, RanksSettings& s) {
  fields(v, static_cast<DistributedSettings&>(s));
  v("compression", s.compression, "bf16: exchange gradients between ranks as bfloat16, which halves the number of bytes",
    config::one_of({"none", "bf16"}));
  v("shard", s.shard,
    "what each rank keeps for only its share of the parameters, and updates only that share; optimizer: the optimizer's moments (ZeRO "
    "stage 1); gradients: the gradients, too (ZeRO stage 2); a run resumes with any value",
    config::one_of({"none", "optimizer", "gradients"}));
  v("heartbeat", s.heartbeat, "seconds without a sign of life after which a rank counts as lost and the job ends",
    config::at_least(5));
}

/// How the best checkpoint is determined.
struct KeepBestSettings {
  std::string metric;
  std::optional<std::string> mode;
};

void fields(auto& v, KeepBestSettings& s) {
  v("metric", s.metric,
    "TASK.METRIC as shown on the run's page, for example retrieval.image_to_text_recall@1, validation_loss.loss or zero_shot.top1");
  v("mode", s.mode,
    "max: the greatest value is best; min: the smallest; null: min for a loss, rank, error or perplexity, max for everything else",
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

void fields(auto& v, CheckpointSettings& s) {
  v("every_steps", s.every_steps, "number of steps between saves; 0: save only at the end", config::at_least(0));
  v("every_minutes", s.every_minutes, "also save when this many minutes have passed since the last save; 0: do not",
    config::at_least(0));
  v("keep_last", s.keep_last, "number of checkpoints to keep; older ones are deleted", config::at_least(1));
  v("keep_every", s.keep_every, "never delete checkpoints of steps divisible by this number; 0: no exceptions",
    config::at_least(0));
  v("keep_best", s.keep_best,
    "also keep the checkpoint with the best value of a metric of the evaluation tasks: {metric: retrieval.image_to_text_recall@1}; "
    "the file checkpoints/best names it; null: do not");
  v("background", s.background, "write checkpoints while training continues, from a copy of the weights and the optimizer state in "
                                "memory");
  v("copy_to", s.copy_to,
    "copy each checkpoint to this second folder (relative to the working folder), for example on another disk; each stage has a "
    "subfolder of its name there; null: do not");
  v("command", s.command,
    "shell command to run after each save, with the checkpoint's folder as $1 and run.name as $2; null: none");
  v("fetch_command", s.fetch_command,
    "shell command that copies back the newest checkpoint stored by `command`, as a folder step_N in the empty folder $1; $2 is "
    "run.name. --resume auto uses it if the run's folder has no intact checkpoint. If nothing is stored yet, it must exit with "
    "code 0 and leave $1 empty; null: none");
}

struct EvaluationSettings {
  std::int64_t every_steps = 0;
  std::int64_t batch_size = 64;
  std::int64_t threads = 2;
  bool at_start = false;
  std::string weights = "model";
  std::vector<config::ModuleSettings> tasks;
};

void fields(auto& v, EvaluationSettings& s) {
  v("every_steps", s.every_steps, "number of steps between evaluations; 0: evaluate only at the end", config::at_least(0));
  v("batch_size", s.batch_size, "number of images that are embedded at a time", config::at_least(1));
  v("threads", s.threads, "number of decoding threads", config::in_range(1, config::kMostThreads));
  v("at_start", s.at_start, "also evaluate before the first step");
  v("weights", s.weights,
    "weights to evaluate; model: the trained weights; ema: their moving average (training.ema); teacher: the weights of the "
    "objective's teacher (DINO)",
    config::one_of({"model", "ema", "teacher"}));
  v("tasks", s.tasks, "the evaluation tasks: [{name: zero_shot, ...}, ...]");
}

struct LogSettings {
  std::int64_t every_steps = 10;
  bool tensorboard = true;
  bool page = true;
  std::optional<std::string> command;
  std::optional<double> peak_tflops;
  std::optional<std::array<std::int64_t, 2>> profile;
};

void fields(auto& v, LogSettings& s) {
  v("every_steps", s.every_steps, "number of steps between rows of metrics.jsonl and metrics.csv",
    config::at_least(1));
  v("tensorboard", s.tensorboard, "also write TensorBoard event files, into the folder tensorboard of the run's folder");
  v("page", s.page, "keep a page with the run's curves and state up to date: run.html in the run's folder");
  v("command", s.command,
    "shell command that the run starts when it writes the first row; it reads rows and evaluations from its standard input, one "
    "line of JSON each (for example, python3 scripts/log_to_wandb.py my-project); null: none");
  v("peak_tflops", s.peak_tflops,
    "peak TFLOP/s of one device, which the MFU (model FLOPs utilization) refers to; null: taken from the GPU's data sheet, or "
    "measured at the start with a matrix product",
    config::above(0));
  v("profile", s.profile,
    "[first, last] step to trace; each rank writes trace_step_N.json into the run's folder, for chrome://tracing or "
    "ui.perfetto.dev; null: none",
    config::at_least(1));
}

/// Rejects a log.profile whose last step is before its first.
std::optional<config::Problem> validate(const LogSettings& settings);

/// All settings of a training run: the content of a YAML file for `trainer`.
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

void fields(auto& v, Config& s) {
  v("seed", s.seed, "seed of all randomness", config::at_least(0));
  v("run", s.run, "where the run's files go");
  v("data", s.data, "what is trained on");
  v("tokenizer", s.tokenizer, "converts text to token ids; null: no tokenizer, for a model without text tower");
  v("model", s.model, "the two towers");
  v("start", s.start, "weights to start from");
  v("adapt", s.adapt, "adapters, as an alternative to fine-tuning whole towers");
  v("objective", s.objective, "the training loss");
  v("optimizer", s.optimizer, "the update rule");
  v("parameters", s.parameters, "which parameters are trained, and how fast");
  v("schedule", s.schedule, "learning rate and weight decay over the run");
  v("training", s.training, "length, precision and device of the run");
  v("distributed", s.distributed, "how several processes (torchrun, srun, mpirun or trainer --nproc N) work together");
  v("checkpoint", s.checkpoint, "saving checkpoints");
  v("evaluation", s.evaluation, "evaluation during the run");
  v("log", s.log, "what a run logs");
}

/// Reads a configuration file and applies the overrides ("a.b=c") in order. Then checks every module's settings through its registry,
/// checks that the parts fit together, and fills in every default. The tokenizer supplies a text encoder's `vocab_size` and
/// `context_length` and a text read-out's `special_token_ids` where these are missing or null. If either the image encoder or the
/// preprocessing sets `image_size`, the other uses the same value. Throws UserError naming file, line and key.
Config load_config(const std::string& path, const std::vector<std::string>& overrides = {});

/// Does the same as load_config() for a tree of settings; `name` is the run's name if the tree does not set one. If `without_vocabulary` is
/// true, an unreadable vocabulary file is not an error, and a text encoder that would use the vocabulary's size keeps its own default.
Config resolve_config(const config::Node& tree, const std::string& name, bool without_vocabulary = false);

/// Returns the whole configuration as YAML; loading the YAML yields an identical configuration.
std::string to_yaml(const Config& config);

/// Returns the same YAML as to_yaml(), but with absolute paths, including the paths of outputs. It is for the copy in the run's own folder,
/// which must work from any working folder.
std::string to_yaml_anywhere(Config config);

/// Returns the text of docs/configuration.md, which is generated from the fields() functions of all settings.
std::string configuration_document();

}  // namespace tessera
