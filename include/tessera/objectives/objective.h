#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include <tessera/batch.h>
#include <tessera/config/registry.h>
#include <tessera/distributed/process_group.h>
#include <tessera/features.h>
#include <tessera/models/shared_parameters.h>

namespace tessera {

class DualEncoder;

/// A loss and its named parts. `total` is differentiated; `terms` are detached when logged.
struct Losses {
  at::Tensor total;                                       // scalar
  std::vector<std::pair<std::string, at::Tensor>> terms;  // unweighted scalars, in a fixed order
  // Intermediate results (similarities, codes, choices), detached; filled only if StepContext::inspect is set.
  std::vector<std::pair<std::string, at::Tensor>> details;
  // Detached scalars that the log shows in addition to the terms, such as the number of active tokens. They are not part of the loss.
  std::vector<std::pair<std::string, at::Tensor>> statistics{};
  // For each named set of K entries (tokens, prototypes): bool [K], true for the entries that this batch used. Under the set's name, the
  // log reports the share of entries that no step has used since the log's previous row.
  std::vector<std::pair<std::string, at::Tensor>> used{};

  /// Adds a term to the total, with this weight.
  void add(std::string name, double weight, const at::Tensor& loss);
};

class Objective;

/// What an objective may know about the current step.
struct StepContext {
  std::int64_t step = 0;         // number of updates made before this step
  std::int64_t total_steps = 0;  // number of steps of the run; 0: unknown
  std::int64_t epoch = 0;        // the batch's epoch, counted over all sources together; 0 is the first
  std::uint64_t seed = 0;        // the run's seed; an objective's random numbers depend only on (seed, step)
  bool training = true;
  bool inspect = false;            // whether to fill Losses::details
  bool counted = false;            // true: before_step() has counted the step's samples; false: forward() counts the samples that it gets
  ProcessGroup group;              // the ranks that share the global batch; ProcessGroup documents how the ranks' losses combine
  Objective* teacher = nullptr;    // the objective with the weights of the moving average; null if the run keeps none
  std::optional<double> teacher_scale{};  // the learned factor of a frozen teacher's cosines (Needs::teacher_model), if it has one
};

/// A training loss. It accesses only Features, so it works with all code that batches, caches or gathers features. It may have parameters
/// of its own (logit_scale, decoders, prototypes).
class Objective : public torch::nn::Module {
 public:
  /// Computes the loss. Throws UserError if the towers do not output a tensor that the objective needs, c10::Error if a shape is
  /// wrong.
  virtual Losses forward(const Features& features, const StepContext& context) = 0;
  virtual Needs needs() const = 0;
  /// Returns the chance levels of loss terms, by the terms' names in Losses::terms. A chance level is the loss of a model that has
  /// learned nothing; for a contrast over `pairs` pairs of all ranks it is log(pairs). The log warns about terms that stay at this
  /// level.
  virtual std::map<std::string, double> chance_levels(std::int64_t /*pairs*/) const { return {}; }
  /// Returns true if the objective must see all batches of an optimizer step before the step's first loss is computed. In that case
  /// before_step() receives the batches, and forward() runs with StepContext::counted set.
  virtual bool looks_ahead() const { return false; }
  /// Called once before each optimizer step in training if looks_ahead() is true. `batches` are this rank's micro-batches (one or
  /// more), on the CPU or on the device. May change only registered buffers, which are restored if the step's update is skipped.
  virtual void before_step(const std::vector<const Batch*>& /*batches*/, const StepContext& /*step*/) {}
  /// Called after each optimizer step, which `done` describes. Derived classes clamp parameters here (such as logit_scale to [0, log 100]).
  virtual void after_step(const StepContext& /*done*/) {}
  /// Returns true if forward() reads step, total_steps or epoch. Such an objective cannot be recorded as a CUDA graph
  /// (training.cuda_graph), because the graph would use the recorded step's values in every step.
  virtual bool follows_step() const { return false; }
  /// Returns the numbers of columns of the embeddings at which the objective trains them to be cut (Matryoshka); empty: only whole ones.
  virtual std::vector<std::int64_t> nested_widths() const { return {}; }
  /// Returns the momentum of the teacher's moving average at this step, for an objective that needs a teacher.
  virtual double teacher_momentum(const StepContext& /*step*/) const { return 0.999; }
};

/// Information about the model that an objective with its own parameters needs.
struct ObjectiveContext {
  std::int64_t embed_dim = 512;
  SharedParameters* shared = nullptr;  // parameters that the towers offer for sharing with the objective; null: none
  at::Tensor logit_scale{};            // a shared temperature; undefined: the objective creates its own
  std::int64_t image_width = 0;        // width of the image encoder's tokens; 0 if unknown
  std::int64_t vocab_size = 0;         // number of token ids of the text encoder; 0 if there is no text encoder
};

/// Returns the context for an objective of `model`. It lets the objective share the model's parameters.
ObjectiveContext objective_context(DualEncoder& model);

using ObjectiveRegistry = config::Registry<Objective, const ObjectiveContext&>;

/// Returns the registry of all objectives. User code adds an objective with objectives().add<Settings>(name, help, factory).
ObjectiveRegistry& objectives();

}  // namespace tessera
