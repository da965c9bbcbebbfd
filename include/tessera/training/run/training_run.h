#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tessera/data/loading/loader.h>
#include <tessera/data/source.h>
#include <tessera/data/tokenizers/tokenizer.h>
#include <tessera/models/dual_encoder.h>
#include <tessera/models/model_file.h>
#include <tessera/models/parameter_count.h>
#include <tessera/objectives/objective.h>
#include <tessera/optim/optimizer.h>
#include <tessera/training/config/config.h>
#include <tessera/training/run/teacher.h>

namespace tessera {

/// What a configuration describes, built: data, model, objective and optimizer of one rank.
struct TrainingRun {
  at::Device device = at::kCPU;
  std::shared_ptr<const Source> train, validation;  // validation may be null
  std::shared_ptr<const Tokenizer> tokenizer;       // null: a model without text tower
  std::shared_ptr<DualEncoder> model;
  std::shared_ptr<Objective> objective;
  std::shared_ptr<Optimizer> optimizer;
  std::shared_ptr<const FeatureFolder> features;  // of the training pictures; null: these go through the encoder
  std::unique_ptr<Loader> loader;
  std::optional<Ema> ema;
  std::optional<Teacher> teacher;
  Needs needs;
  std::shared_ptr<ToldSamples> told = std::make_shared<ToldSamples>();  // samples left out that the log has named
  std::shared_ptr<const PublishedParts> published;  // what checkpoints carry of the folder that the run began with; null: nothing
  std::string data_fingerprint;  // of the training data, as JSON (data_fingerprint.h); empty: not taken
};

/// Whether the configuration trains on a GPU here. Throws UserError when it must and there is none.
bool trains_on_gpu(const Config& config);

/// The index of a rank's GPU, by its place on its machine and how many its process sees: that place, or the only one
/// (srun --gpus-per-task=1 shows each rank its own). Throws UserError when there is none for it.
int gpu_of(int local_rank, int visible);

/// The CPU, or the rank's GPU, which becomes the current one. Throws UserError as the two above.
at::Device choose_device(const Config& config, int local_rank);

/// What a configuration names and cannot be read here, and why not; empty: it can be read.
struct Unreadable {
  std::string train, validation, tokenizer;
};

/// Builds everything; the initial weights follow from config.seed. The loader reads the rank's share of the samples.
/// Throws UserError when files are missing or parts do not fit. unreadable: if given, data or a vocabulary that cannot be
/// read is no error: it gets the messages, and what could not be read stays null, and so does the loader without training
/// data or without a vocabulary.
TrainingRun build_training_run(const Config& config, const ProcessGroup& group = {}, Unreadable* unreadable = nullptr);

/// The batches of one shard of run.train, as the configuration has them. Throws UserError when there is not one.
std::unique_ptr<Loader> make_loader(const TrainingRun& run, const Config& config, const RankSlice& shard,
                                    const std::string& skipped_file = "");

/// What is trained, under checkpoint names: the model's by OpenCLIP's, the objective's `logit_scale`, its others
/// `objective.*`.
std::vector<NamedParameter> trainable_parameters(const DualEncoder& model, const Objective& objective);

/// Of the run's model and objective, and how many are trained.
ParameterCount count_parameters(const TrainingRun& run);

/// The buffers of model and objective; shared with them.
std::vector<at::Tensor> buffers_of(const TrainingRun& run);

/// Copies weights of an earlier model in, if the settings name one: all, or the parts that are named. Position embeddings are resampled to the model's
/// size. What belongs to another objective is passed over. Throws UserError naming the file, also where it has counted the
/// words (SuperCLIP) of another vocabulary than the tokenizer's; null: not known.
void load_initial_weights(DualEncoder& model, Objective& objective, const StartSettings& start,
                          const Tokenizer* tokenizer = nullptr);

/// Copies such weights in. Throws UserError naming `origin` and the tensor.
void load_weights(DualEncoder& model, Objective& objective, const std::map<std::string, at::Tensor>& weights,
                  const std::string& origin);

/// The towers' forward pass in the configured precision, the teacher's features left out.
Features encode_student(TrainingRun& run, const Batch& batch, const std::string& precision);

/// Adds the teacher's features of the views that ask for them; nothing in a run without one.
void add_teacher_features(TrainingRun& run, const Batch& batch, const std::string& precision, Features& features);

/// Both.
Features encode_batch(TrainingRun& run, const Batch& batch, const std::string& precision);

/// What the objective may know of the step after `step` updates, once the loader has given its batch.
StepContext step_context(const TrainingRun& run, const Config& config, const ProcessGroup& group, std::int64_t step);

/// One forward pass of a batch in the configured precision: bf16 reaches the towers only, losses stay float32.
Losses forward_loss(TrainingRun& run, const Batch& batch, const std::string& precision, const StepContext& context);

}  // namespace tessera
