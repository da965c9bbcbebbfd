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
  // What the loss saw on its way (similarities, codes, choices), detached; only when StepContext::inspect asks for it.
  std::vector<std::pair<std::string, at::Tensor>> details;
  // Numbers that the log shows beside the terms and that are no part of the loss (active tokens): detached scalars.
  std::vector<std::pair<std::string, at::Tensor>> statistics{};
  // Which of many things this batch used (tokens, prototypes), by the name that the log has for the share of those that
  // no step since the row before used: bool [K].
  std::vector<std::pair<std::string, at::Tensor>> used{};
};

class Objective;

/// What an objective may know of the step around it.
struct StepContext {
  std::int64_t step = 0;         // updates made so far
  std::int64_t total_steps = 0;  // of the run; 0: unknown
  std::int64_t epoch = 0;        // of the batch, 0 = first; of all its sources together
  std::uint64_t seed = 0;        // of the run: what an objective draws follows from (seed, step)
  bool training = true;
  bool inspect = false;            // also fill Losses::details
  bool counted = false;            // Objective::before_step() has seen the step's batches; false: forward() sees the whole step
  ProcessGroup group;              // the ranks whose pairs make one batch; how their losses combine: see there
  Objective* teacher = nullptr;    // the objective with the teacher's weights; null: the run keeps no teacher
};

/// A training loss on features. It sees only Features, so everything that batches, caches or gathers features works
/// with it. May own parameters (logit_scale, decoders, prototypes).
class Objective : public torch::nn::Module {
 public:
  /// Throws UserError if the towers do not give a tensor that it needs, c10::Error if one is mis-shaped.
  virtual Losses forward(const Features& features, const StepContext& context) = 0;
  virtual Needs needs() const = 0;
  /// Terms of the loss (Losses::terms, by name) that say when nothing is learned, each with its level then: a contrast of
  /// so many pairs, of all ranks, that tells none from another is at the logarithm of their number. The log warns of
  /// those that stay there.
  virtual std::map<std::string, double> chance_levels(std::int64_t /*pairs*/) const { return {}; }
  /// Whether it has to see all batches of an optimizer step before the first is computed: then before_step() gets them,
  /// and forward() is told so (StepContext::counted).
  virtual bool looks_ahead() const { return false; }
  /// Called once before each optimizer step in training: this rank's micro-batches, one or more, on the CPU or on the
  /// device. What it moves are registered buffers, which are put back where the step's update is left out. Of objectives
  /// that look ahead.
  virtual void before_step(const std::vector<const Batch*>& /*batches*/, const StepContext& /*step*/) {}
  /// Called after each optimizer step, `done` being the step that was made: keeps parameters in their allowed range
  /// (logit_scale in [0, log 100]), moves centers.
  virtual void after_step(const StepContext& /*done*/) {}
  /// Whether forward() reads step, total_steps or epoch. What is recorded once and played back (training.cuda_graph)
  /// would see the same step for ever, and refuses such an objective.
  virtual bool follows_step() const { return false; }
  /// Share of the teacher's weights that stays at the update of this step. Of objectives whose needs() name a teacher.
  virtual double teacher_momentum(const StepContext& /*step*/) const { return 0.999; }
};

/// What an objective with parameters of its own must know of the model.
struct ObjectiveContext {
  std::int64_t embed_dim = 512;
  SharedParameters* shared = nullptr;  // parameters of the towers that it may share; null: none
  at::Tensor logit_scale{};            // a temperature that it shares; undefined: it makes its own
  std::int64_t image_width = 0;        // of the image encoder's tokens; 0: not known
  std::int64_t vocab_size = 0;         // number of token ids of the text encoder; 0: there is none
};

/// Of a model, whose parameters it shares.
ObjectiveContext objective_context(DualEncoder& model);

using ObjectiveRegistry = config::Registry<Objective, const ObjectiveContext&>;

/// All objectives by registered name. A user's own code adds one with objectives().add<Settings>(name, help, factory).
ObjectiveRegistry& objectives();

}  // namespace tessera
