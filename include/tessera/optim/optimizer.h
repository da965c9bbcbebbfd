#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/config/registry.h>
#include <tessera/distributed/process_group.h>

namespace tessera {

/// A trainable tensor under its checkpoint name; the name decides about weight decay.
struct NamedParameter {
  std::string name;
  at::Tensor tensor;
  double lr_scale = 1.0;           // its learning rate, as a multiple of the schedule's
  std::int64_t frozen_steps = 0;   // the optimizer's first updates, which leave it alone
  std::int64_t blocks_behind = 0;  // steps of layer decay between it and its tower's output (Tower::blocks_behind)
};

/// Settings that every optimizer has.
struct DecaySettings {
  double weight_decay = 0.0;
  std::vector<std::string> no_decay = {"bias",
                                       "ln_",
                                       "norm",
                                       "logit_scale",
                                       "positional_embedding",
                                       "position_embedding",
                                       "pos_embed",
                                       "class_embedding",
                                       "class_token",
                                       "cls_token"};
};

/// Whether a parameter decays: only tensors of two or more dimensions whose name contains none of `no_decay` do.
bool decays(const NamedParameter& parameter, const DecaySettings& settings);

/// Updates parameters from their gradients. Parameters keep their storage; a parameter without gradient, or within its
/// frozen_steps, is left alone in that step, and so are its moments. Bias corrections count the optimizer's own steps
/// from the first that is not frozen.
class Optimizer {
 public:
  /// peak: the learning rate that the schedule scales from. moments: names of the tensors of its shape that each
  /// parameter carries along. Throws UserError when two parameters have one name.
  Optimizer(std::vector<NamedParameter> parameters, const DecaySettings& decay, double peak,
            std::vector<std::string> moments = {"exp_avg", "exp_avg_sq"});
  virtual ~Optimizer() = default;

  /// Shares moments and updates out over the group's ranks (stage 1 of ZeRO, Rajbhandari et al. 2020): each rank keeps
  /// the moments of its part of the parameters, whole tensors, balanced by elements (balanced_owners), updates these
  /// alone, and takes the others' new values from their owners, in transfers of up to bucket_mb MiB. The updates are
  /// those of one optimizer for all, bit for bit on CPUs. Parameters and gradients must be equal on all ranks. From
  /// then on step() and gather_state() are collective. Before the first step; alone it changes nothing.
  void shard(const ProcessGroup& group, double bucket_mb);

  /// One update with this learning rate, and this weight decay of the parameters that decay (unset: the settings').
  /// found_inf: float32 scalar on the parameters' device; where it is 1, weights, moments and the count of updates that
  /// bias corrections go by stay as they are, without the host having to know. Undefined: the update is made.
  void step(double learning_rate, std::optional<double> weight_decay = {}, const at::Tensor& found_inf = {});
  /// `count` calls of step() found an infinity and do not count as updates; said once the host knows.
  void take_back(std::int64_t count);
  /// Drops all gradients.
  void zero_grad();

  double peak_learning_rate() const { return peak_; }
  /// Calls of step(), those that changed nothing included until they are taken back.
  std::int64_t steps_taken() const { return steps_; }
  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  /// That of the settings, and what of it a parameter has: 0 where it does not decay.
  double weight_decay() const { return weight_decay_; }
  double weight_decay(std::size_t index) const { return decays_[index] ? weight_decay_ : 0.0; }
  /// Whether the next step() leaves a parameter alone whatever its gradient, by the calls that are not taken back.
  bool frozen(std::size_t index) const { return steps_ < parameters_[index].frozen_steps; }

  /// What this rank keeps of the state: `step` (int64 scalar) and `MOMENT.NAME`, say `exp_avg.logit_scale`. The tensors
  /// share memory with the optimizer.
  std::map<std::string, at::Tensor> state() const;
  /// Everything a resume needs, on whatever ranks, shared out or not: on rank 0 the whole state (what the others keep:
  /// in host memory), on the others nothing.
  std::map<std::string, at::Tensor> gather_state() const;
  /// Copies such a whole state in, or this rank's part of it. Throws UserError naming `origin` and the tensor that is
  /// missing, left over or mis-shaped.
  void load_state(const std::map<std::string, at::Tensor>& state, const std::string& origin);

 protected:
  /// Parameters that have a gradient in this step and share learning rate, weight decay, count of updates, dtype and
  /// device.
  struct Group {
    at::Tensor count;  // float64 scalar on their device: 1 at the first update of these parameters
    double learning_rate = 0;
    double weight_decay = 0;
    std::vector<std::size_t> indices;
    std::vector<at::Tensor> parameters, gradients;
    std::vector<std::vector<at::Tensor>> moments;  // [moment][parameter]
  };

  /// Sees all gradients of the step, those of parameters that other ranks update included, before update(). Called
  /// without gradient recording.
  virtual void measure(const std::vector<Group>& /*groups*/) {}
  /// found_inf: as in step(). Nothing may be read back from the device. Called without gradient recording.
  virtual void update(std::vector<Group>& groups, const std::optional<at::Tensor>& found_inf) = 0;

 private:
  struct Shards {
    ProcessGroup group;
    double bucket_mb = 0;
    std::vector<int> owners;  // rank, by parameter
  };

  std::vector<Group> groups(double learning_rate, double weight_decay) const;
  std::vector<Group> own(const std::vector<Group>& all) const;
  bool owns(std::size_t index) const;
  std::string moment_name(std::size_t moment, std::size_t index) const;
  std::vector<at::Tensor> tensors() const;

  std::vector<NamedParameter> parameters_;
  double weight_decay_;
  std::vector<bool> decays_;
  std::vector<std::string> moment_names_;
  // [moment][parameter]; what another rank keeps is a meta tensor, a shape without memory.
  std::vector<std::vector<at::Tensor>> moments_;
  std::optional<Shards> shards_;
  double peak_;
  std::int64_t steps_ = 0;
  at::Tensor missed_;  // float64 scalar on the device: of steps_, those that found an infinity; undefined: none
};

/// `optimizer:` by name. The factory gets the parameters to train.
using OptimizerRegistry = config::Registry<Optimizer, const std::vector<NamedParameter>&>;
OptimizerRegistry& optimizers();

}  // namespace tessera
