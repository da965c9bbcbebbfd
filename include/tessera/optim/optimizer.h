#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/config/registry.h>
#include <tessera/distributed/process_group.h>

namespace tessera {

class FlatShards;
struct GradientShards;
struct Piece;
class WeightCopies;

/// A trainable tensor with its name in checkpoints. The name also decides whether the tensor has weight decay.
struct NamedParameter {
  std::string name;
  at::Tensor tensor;
  double lr_scale = 1.0;           // the parameter's learning rate as a multiple of the schedule's
  std::int64_t frozen_steps = 0;   // how many updates at the start leave the parameter unchanged
  std::int64_t blocks_behind = 0;  // number of layer-decay steps between the parameter and its tower's output (Tower::blocks_behind)
};

/// Weight-decay settings, which every optimizer has.
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

/// Whether a parameter decays. It does if its tensor has two or more dimensions and its name contains none of the texts in `no_decay`.
bool decays(const NamedParameter& parameter, const DecaySettings& settings);

/// What an update is made with, in addition to the gradients.
struct UpdateInputs {
  double learning_rate = 0;
  std::optional<double> weight_decay;  // of the parameters that decay; unset: the settings' weight decay
  /// A float32 scalar on the parameters' device, for whose value the host does not wait. A value of 1 leaves weights, moments and the
  /// update count of bias corrections unchanged. Undefined: the update is always made.
  at::Tensor found_inf;
  at::Tensor factor;  // float32 scalar on the device, by which gradients are multiplied; only if Optimizer::applies_factor()
  /// float64 [3] on the parameters' device: the learning rate, the weight decay, and steps_taken() + 1. They replace the numbers of the host,
  /// so that a recorded update stays right (Optimizer::can_be_recorded()). Undefined: the host's numbers are used.
  at::Tensor numbers;
};

/// Elements of state tensors: of each tensor those from `begin` to `end`, in the order in which the whole tensor's elements lie in memory.
struct StatePart {
  struct Place {
    std::vector<std::int64_t> sizes, strides;  // of the whole tensor
    std::int64_t begin = 0, end = 0;
  };
  std::map<std::string, Place> places;
  std::function<std::map<std::string, at::Tensor>()> read;  // returns the elements of each tensor, [end - begin]
};

/// Updates parameters from their gradients. Parameters keep their storage. A step leaves a parameter and its moments unchanged if the
/// parameter has no gradient or is within its frozen_steps. A parameter's bias correction counts this optimizer's updates after the
/// parameter's frozen_steps.
class Optimizer {
 public:
  /// Whether a parameter has the moment with this number. Unset: each parameter has all moments.
  using HasMoment = std::function<bool(std::size_t moment, const NamedParameter& parameter)>;

  /// `peak` is the learning rate that the schedule scales. `moments` are the names of the state tensors that parameters have, in the
  /// parameter's shape. Throws UserError if two parameters have the same name.
  Optimizer(std::vector<NamedParameter> parameters, const DecaySettings& decay, double peak,
            std::vector<std::string> moments = {"exp_avg", "exp_avg_sq"}, const HasMoment& has = {});
  virtual ~Optimizer() = default;

  /// Shards moments and updates over the group's ranks (ZeRO stage 1, Rajbhandari et al. 2020). The elements of all parameters are divided
  /// evenly (FlatShards), except matrices that can only be updated as a whole (divisible()), each of which belongs to one rank. A rank
  /// keeps the moments of its own elements, updates only these, and receives the other elements' new values in transfers of up to
  /// bucket_mb MiB. On CPUs the updates equal those of one optimizer for all parameters bit for bit, unless they depend on a norm of the
  /// whole parameter (whole_sums()), whose sum over ranks rounds differently. Parameters and gradients must be equal on all ranks. After
  /// shard(), step() and gather_state() are collective. Must be called before the first step. Has no effect with a single process.
  /// With `gradients`, a rank has the gradients of its own elements only (ZeRO stage 2), which a GradientReducer puts into
  /// gradient_shards().
  void shard(const ProcessGroup& group, double bucket_mb, bool gradients = false);

  /// Stores moments in bfloat16, which halves their memory. An update computes in the parameters' type and rounds the new moments
  /// stochastically (round_stochastically()), because rounding to the nearest value would lose small changes. The random numbers depend only
  /// on `seed`, steps_taken(), parameter and moment. Must be called before the first step.
  virtual void round_moments(std::uint64_t seed);

  /// Makes one update.
  void step(const UpdateInputs& inputs);
  void step(double learning_rate, std::optional<double> weight_decay = {}, const at::Tensor& found_inf = {}) {
    step({learning_rate, weight_decay, found_inf, {}, {}});
  }
  /// The two parts of step(): the work on the device, which can be recorded and replayed, and the host's count of updates.
  void update_weights(const UpdateInputs& inputs);
  void count_update();
  /// Whether an update multiplies the gradients by UpdateInputs::factor, which saves a pass over them.
  virtual bool applies_factor() const { return false; }
  /// Whether update_weights() with UpdateInputs::numbers can be recorded: it reads nothing back, and no parameter is frozen any longer.
  bool can_be_recorded() const;
  /// Reduces steps_taken() by `count`, the number of past step() calls whose found_inf was 1. Call it when the host knows that number.
  void take_back(std::int64_t count);
  /// Drops all gradients. The first call allocates the moments, if no other call has done so.
  void zero_grad();

  /// Copies of the weights in bfloat16 that updates also write, for the forward pass (src/ops/weight_copies.h); null if there are none.
  virtual WeightCopies* weight_copies() { return nullptr; }

  bool is_sharded() const { return shards_ != nullptr; }
  /// Where gradients come from after shard() with `gradients`; otherwise null, and they come from the parameters.
  const std::shared_ptr<GradientShards>& gradient_shards() const { return gradients_; }
  /// The gradient of a parameter in the next step; undefined if it has none. With gradient_shards(), that of this rank's elements, [n].
  const at::Tensor& gradient(std::size_t index) const;
  /// The gradients of all parameters that have one.
  std::vector<at::Tensor> gradients() const;
  /// Returns the norms of gradients over all ranks, given those of gradients(). Collective if the gradients are sharded; otherwise these are
  /// the same.
  at::Tensor norms_over_ranks(const at::Tensor& own) const;

  double peak_learning_rate() const { return peak_; }
  /// The number of calls of step(), minus the skipped updates that take_back() has subtracted.
  std::int64_t steps_taken() const { return steps_; }
  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  /// These functions return the settings' weight decay, and the weight decay of one parameter, which is 0 if the parameter does not decay.
  double weight_decay() const { return weight_decay_; }
  double weight_decay(std::size_t index) const { return decays_[index] ? weight_decay_ : 0.0; }
  /// Whether the next step() leaves this parameter unchanged even if it has a gradient, because steps_taken() is below its frozen_steps.
  /// Skipped updates that take_back() has not subtracted yet can keep it unchanged for as many further calls.
  bool frozen(std::size_t index) const { return steps_ < parameters_[index].frozen_steps; }

  /// The state that this rank keeps: `step` (int64 scalar) and `MOMENT.NAME`, such as `exp_avg.logit_scale`. After shard(), a tensor holds
  /// the rank's elements of the moment, [n]. The tensors share memory with the optimizer.
  std::map<std::string, at::Tensor> state() const;
  /// Returns everything that is needed to resume on any number of ranks, with or without shard(). Rank 0 gets the whole state; the parts
  /// that other ranks have sent are in rank 0's host memory. After shard(), all ranks except rank 0 get an empty map.
  std::map<std::string, at::Tensor> gather_state() const;
  /// After shard(), returns the elements of the moments that this rank keeps. The tensors share memory with the optimizer.
  StatePart part() const;
  /// The number of bytes of the moments of all ranks, each element counted once.
  std::int64_t state_bytes() const;
  /// Loads a whole state. Throws UserError naming `origin` and the tensor that is missing, left over or of the wrong shape.
  void load_state(const std::map<std::string, at::Tensor>& state, const std::string& origin);
  /// Loads a whole state after `step` updates from parts, which any number of ranks may have kept. Reads only the parts of which this rank
  /// keeps elements. Throws as the other load_state().
  void load_state(const std::vector<StatePart>& parts, std::int64_t step, const std::string& origin);

 protected:
  /// Parameters that have a gradient in this step and share learning rate, weight decay, update count, dtype and
  /// device.
  struct Group {
    at::Tensor count;  // float64 scalar on the parameters' device: how often these parameters were updated, including the current update
    double learning_rate = 0;
    double weight_decay = 0;
    std::optional<at::Tensor> found_inf;  // as in step(); also 1 while skipped steps keep the parameters frozen
    const UpdateInputs* inputs = nullptr;
    double learning_rate_scale = 1, weight_decay_scale = 1;  // the group's values as multiples of those in inputs->numbers
    std::vector<std::size_t> indices;
    std::vector<at::Tensor> parameters, gradients;
    std::vector<std::vector<at::Tensor>> moments;  // [moment][parameter]; undefined if the parameter does not have the moment

    /// Replaces the gradients by zero if found_inf is 1. Multiplying them by zero would not do, because a non-finite number times zero is
    /// not zero.
    void drop_skipped_gradients();
    /// Returns 1 - found_inf as a float64 scalar on the parameters' device.
    at::Tensor made() const;
    /// Multiplies the parameters by 1 - learning rate * weight decay, unless found_inf is 1.
    void decay_weights() const;
    /// Returns the group of those parameters whose indices are `wanted`.
    Group only(const std::function<bool(std::size_t index)>& wanted) const;
  };

  /// Called before update() with all gradients of the step, including those of parameters that other ranks update.
  /// Called without gradient recording.
  virtual void measure(const std::vector<Group>& /*groups*/) {}
  /// Updates each group, unless its found_inf is 1. Must not read anything back from the device. Called without gradient recording; several
  /// times per step, with parts of the groups, if moments are rounded.
  virtual void update(std::vector<Group>& groups) = 0;
  /// Called after each update with the indices of the parameters that this rank has updated, whose versions have changed.
  virtual void after_update(const std::vector<std::size_t>& /*updated*/) {}
  /// Whether an update of some elements of this parameter needs no others, except for whole_sums().
  virtual bool divisible(std::size_t /*index*/) const { return true; }
  /// Whether update() calls whole_sums(), equally often on all ranks. After shard(), it then gets all groups, also those of which this rank
  /// owns nothing.
  virtual bool uses_whole_sums() const { return false; }
  /// Sums numbers over the parts of a parameter: `sums` has a scalar for each of the group's parameters, summed over this rank's elements;
  /// the result has the sums over all elements. After shard(), the call is collective.
  std::vector<at::Tensor> whole_sums(const Group& group, const std::vector<at::Tensor>& sums) const;
  /// Whether update() uses only numbers on the device if there are UpdateInputs::numbers. Otherwise the host reads them, which only a CPU
  /// allows.
  virtual bool uses_device_numbers() const { return false; }

 private:
  std::vector<Group> groups(const UpdateInputs& inputs) const;
  std::vector<Group> own(const std::vector<Group>& all) const;
  void update_and_round(const Group& group);
  at::Tensor own_part(std::size_t index, const at::Tensor& whole) const;
  std::vector<std::vector<at::Tensor>>& moments() const;
  std::string moment_name(std::size_t moment, std::size_t index) const;
  std::vector<at::Tensor> tensors() const;
  struct WantedMoment;
  using WantedMoments = std::map<std::string, WantedMoment>;
  WantedMoments wanted_of(const std::vector<StatePart>& parts, const std::string& origin) const;
  Piece needed(std::size_t index, const StatePart::Place& place) const;
  void load_part(const StatePart& part, WantedMoments& wanted, const std::string& origin);

  std::vector<NamedParameter> parameters_;
  double weight_decay_;
  std::vector<bool> decays_;
  std::vector<std::string> moment_names_;
  // [moment][parameter]; after shard(), the elements that this rank owns, [n]. Undefined: the parameter does not have the moment.
  mutable std::vector<std::vector<at::Tensor>> moments_;
  mutable bool allocated_ = false;  // before that, `moments_` has tensors without memory
  std::shared_ptr<const FlatShards> shards_;   // null before shard()
  std::shared_ptr<GradientShards> gradients_;  // null unless gradients are sharded
  std::optional<std::uint64_t> rounding_;  // the seed of round_moments()
  double peak_;
  std::int64_t steps_ = 0;
  std::vector<std::size_t> updated_;  // the parameters that this rank's last update_weights() updated
  at::Tensor missed_;  // float64 scalar on the device: how many of the calls that steps_ counts had a found_inf of 1; undefined: none.
                       // Recorded updates add to it, so it is changed only in place.
};

/// The registry of optimizers that the setting `optimizer` can name. The factory gets the parameters to train.
using OptimizerRegistry = config::Registry<Optimizer, const std::vector<NamedParameter>&>;
OptimizerRegistry& optimizers();

}  // namespace tessera
