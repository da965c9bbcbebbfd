#pragma once

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

namespace tessera {

/// A loss and its named parts. `total` is differentiated; `terms` are detached when logged.
struct Losses {
  at::Tensor total;                                       // scalar
  std::vector<std::pair<std::string, at::Tensor>> terms;  // scalars, unweighted, in a fixed order
  // What the loss saw on its way (similarities, codes, choices), detached; only when StepContext::inspect asks for it.
  std::vector<std::pair<std::string, at::Tensor>> details;
};

/// What an objective may know of the step around it.
struct StepContext {
  std::int64_t step = 0;
  bool training = true;
  bool inspect = false;                    // also fill Losses::details
  std::optional<at::Generator> generator;  // for everything random inside the loss
  ProcessGroup group;                      // the ranks whose pairs make one batch; how their losses combine: see there
};

/// A training loss on features. It sees only Features, so everything that batches, caches or gathers features works
/// with it. May own parameters (logit_scale, decoders, prototypes).
class Objective : public torch::nn::Module {
 public:
  /// Throws c10::Error if a view or tensor it needs is missing or mis-shaped.
  virtual Losses forward(const Features& features, const StepContext& context) = 0;
  virtual Needs needs() const = 0;
  /// Called after each optimizer step: keeps parameters in their allowed range (logit_scale in [0, log 100]).
  virtual void after_step() {}
};

/// Widths that an objective with parameters of its own must know.
struct ObjectiveContext {
  std::int64_t embed_dim = 512;
};

using ObjectiveRegistry = config::Registry<Objective, const ObjectiveContext&>;

/// All objectives by registered name. A user's own code adds one with objectives().add<Settings>(name, help, factory).
ObjectiveRegistry& objectives();

}  // namespace tessera
