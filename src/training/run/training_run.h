#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/data/loading/reported_samples.h"
#include "src/models/parameter_count.h"
#include "src/training/run/teacher.h"
#include <tessera/data/loading/loader.h>
#include <tessera/data/source.h>
#include <tessera/data/tokenizers/tokenizer.h>
#include <tessera/models/dual_encoder.h>
#include <tessera/models/model_file.h>
#include <tessera/objectives/objective.h>
#include <tessera/optim/optimizer.h>
#include <tessera/training/config/config.h>

namespace tessera {

/// The objects built from a configuration: data, model, objective and optimizer of one rank.
struct TrainingRun {
  at::Device device = at::kCPU;
  std::shared_ptr<const Source> train, validation;  // the training data, and the validation data, which may be null
  std::shared_ptr<const Tokenizer> tokenizer;       // null for a model without text tower
  std::shared_ptr<DualEncoder> model;
  std::shared_ptr<Objective> objective;
  std::shared_ptr<Optimizer> optimizer;
  std::shared_ptr<const TaughtFolder> teachers;   // stored embeddings of teachers; null: none
  std::shared_ptr<const FeatureFolder> features;  // precomputed features of the training images; null if the encoder processes the images
  std::shared_ptr<const FeatureFolder> text_features;  // precomputed vectors of the texts; null: none
  std::unique_ptr<Loader> loader;
  std::optional<Ema> ema;
  std::optional<Teacher> teacher;
  Needs needs;
  std::shared_ptr<ReportedSamples> reported = std::make_shared<ReportedSamples>();  // skipped samples that the log has already reported
  std::shared_ptr<const PublishedParts> published;  // parts of the published model's folder that checkpoints also store; null if none
  std::string data_fingerprint;  // fingerprint of the training data, as JSON (data_fingerprint.h); empty if not computed
  std::string tuning;            // digest of the tuning table (src/ops/tuning.h); empty without a GPU
};

/// Returns the index of a rank's GPU, given its local rank and the number of GPUs that its process sees. The index is the local
/// rank, or 0 if the process sees only one GPU (srun --gpus-per-task=1 assigns each rank its own). Throws UserError if there is no
/// GPU for the rank.
int gpu_of(int local_rank, int visible);

/// Returns the CPU or the rank's GPU, as training.device says. Makes that GPU the current one. Throws UserError like gpu_of(), and if the
/// configuration requires a GPU and there is none.
at::Device choose_device(const Config& config, int local_rank);

/// For each part of a configuration's data, the reason why it cannot be read on this machine; empty if it can be read.
struct Unreadable {
  std::string train, validation, tokenizer;
};

/// Builds all objects of a run; config.seed determines the initial weights. The loader reads the rank's share of the samples. Throws
/// UserError if files are missing or parts do not fit together. If `unreadable` is given, unreadable data or an unreadable vocabulary is
/// not an error. Instead, the reasons are stored in `unreadable`, and the members of TrainingRun for the unreadable parts are null. If the
/// training data or the vocabulary is unreadable, the loader is null as well.
TrainingRun build_training_run(const Config& config, const ProcessGroup& group = {}, Unreadable* unreadable = nullptr);

/// Makes a loader for the batches of one rank's shard of run.train. Throws UserError if there are too few samples for one batch.
std::unique_ptr<Loader> make_loader(const TrainingRun& run, const Config& config, const RankSlice& shard,
                                    const std::string& skipped_file = "");

/// Makes the optimizer that the configuration names, for these parameters.
std::shared_ptr<Optimizer> make_optimizer(const Config& config, const std::vector<NamedParameter>& parameters);

/// Counts the parameters of the run's model and objective, and how many of them are trained.
ParameterCount count_parameters(const TrainingRun& run);

/// Returns the buffers of the run's model and objective. The tensors are shared with them.
std::vector<at::Tensor> collect_buffers(const TrainingRun& run);

/// Copies the weights of an earlier model into a run if its settings name one: all weights, or only the weights of the named parts.
/// Resamples position embeddings to the model's size and skips weights of other objectives. Returns warnings, one line each: settings of
/// the run that differ from those of the weights, a temperature that the file lacks or that is out of the objective's range. Throws
/// UserError naming the file. It also throws if the file has word counts (SuperCLIP) for a vocabulary other than the tokenizer's.
std::vector<std::string> load_initial_weights(TrainingRun& run, const Config& config);

/// Copies weights, keyed by their names in checkpoints, into model and objective. Throws UserError that names `origin` and the tensor if a
/// tensor does not fit.
void load_weights(DualEncoder& model, Objective& objective, const std::map<std::string, at::Tensor>& weights,
                  const std::string& origin);

/// Runs the towers' forward pass in the configured precision, without the teacher.
Features encode_student(TrainingRun& run, const Batch& batch, const std::string& precision);

/// Adds the teacher's features for the views that need them. Does nothing in a run without a teacher.
void add_teacher_features(TrainingRun& run, const Batch& batch, const std::string& precision, Features& features);

/// Runs encode_student() and add_teacher_features().
Features encode_batch(TrainingRun& run, const Batch& batch, const std::string& precision);

/// Returns the objective's context for the step that follows `step` updates. Must be called after the loader has returned the
/// step's batch.
StepContext step_context(const TrainingRun& run, const Config& config, const ProcessGroup& group, std::int64_t step);

/// Runs one forward pass of a batch in the configured precision. Only the towers use the lower precision; losses stay float32.
Losses forward_loss(TrainingRun& run, const Batch& batch, const std::string& precision, const StepContext& context);

}  // namespace tessera
