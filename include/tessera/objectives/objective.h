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
  std::vector<std::pair<std::string, at::Tensor>> terms;  // scalars, unweighted, in a fixed order
  // Intermediate results (similarities, codes, choices), detached; filled only if StepContext::inspect is set.
  std::vector<std::pair<std::string, at::Tensor>> details;
  // Numbers that the log shows in addition to the terms, but which are not part of the loss (active tokens): detached scalars.
  std::vector<std::pair<std::string, at::Tensor>> statistics{};
  // Which entries of a set (tokens, prototypes) this batch used, bool [K]. Under this name the log reports the share of entries
  // that no step has used since the previous row.
  std::vector<std::pair<std::string, at::Tensor>> used{};
};

class Objective;

/// What an objective may know about the current step.
struct StepContext {
  std::int64_t step = 0;         // updates made so far
  std::int64_t total_steps = 0;  // of the run; 0: unknown
  std::int64_t epoch = 0;        // the batch's epoch over all sources together, 0 = first
  std::uint64_t seed = 0;        // of the run; an objective's random numbers depend only on (seed, step)
  bool training = true;
  bool inspect = false;            // also fill Losses::details
  bool counted = false;            // Objective::before_step() has seen the step's batches; false: forward() sees the whole step
  ProcessGroup group;              // the ranks that share the global batch; ProcessGroup documents how their losses combine
  Objective* teacher = nullptr;    // the objective with the teacher's weights; null: the run keeps no teacher
};

/// A training loss on features. It sees only Features, so it works with all code that batches, caches or gathers features. It
/// may own parameters (logit_scale, decoders, prototypes).
class Objective : public torch::nn::Module {
 public:
  /// Computes the loss. Throws UserError if the towers do not output a tensor that it needs, c10::Error if a shape is wrong.
  virtual Losses forward(const Features& features, const StepContext& context) = 0;
  virtual Needs needs() const = 0;
  /// Returns the chance level of loss terms (Losses::terms, by name): the value of a model that has learned nothing. For a contrast
  /// over `pairs` pairs of all ranks it is log(pairs). The log warns about terms that stay at this level.
  virtual std::map<std::string, double> chance_levels(std::int64_t /*pairs*/) const { return {}; }
  /// Returns true if the objective must see all batches of an optimizer step before the first is computed. Then before_step()
  /// receives them, and forward() runs with StepContext::counted set.
  virtual bool looks_ahead() const { return false; }
  /// Called once before each optimizer step in training, for objectives that look ahead, with this rank's micro-batches (one or
  /// more) on the CPU or on the device. It may change only registered buffers; they are restored if the step's update is skipped.
  virtual void before_step(const std::vector<const Batch*>& /*batches*/, const StepContext& /*step*/) {}
  /// Called after each optimizer step; `done` is that step. Clamps parameters to their allowed range (logit_scale in
  /// [0, log 100]).
  virtual void after_step(const StepContext& /*done*/) {}
  /// Returns true if forward() reads step, total_steps or epoch. A recorded CUDA graph (training.cuda_graph) would see the same
  /// step forever and therefore refuses such an objective.
  virtual bool follows_step() const { return false; }
  /// Returns the momentum of the teacher's moving average at this step, for objectives whose needs() name a teacher.
  virtual double teacher_momentum(const StepContext& /*step*/) const { return 0.999; }
};

/// What an objective with its own parameters must know about the model.
struct ObjectiveContext {
  std::int64_t embed_dim = 512;
  SharedParameters* shared = nullptr;  // parameters of the towers that it may share; null: none
  at::Tensor logit_scale{};            // a temperature that it shares; undefined: it creates its own
  std::int64_t image_width = 0;        // width of the image encoder's tokens; 0: unknown
  std::int64_t vocab_size = 0;         // number of token ids of the text encoder; 0: there is no text encoder
};

/// Returns the context for a model; the objective can then share the model's parameters.
ObjectiveContext objective_context(DualEncoder& model);

using ObjectiveRegistry = config::Registry<Objective, const ObjectiveContext&>;

/// Returns the registry of all objectives. User code adds one with objectives().add<Settings>(name, help, factory).
ObjectiveRegistry& objectives();

}  // namespace tessera
