#pragma once

#include <array>
#include <optional>

#include <tessera/optim/optimizer.h>

namespace tessera {

struct LambSettings {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-6;
  DecaySettings decay{.weight_decay = 0.01};
  bool bias_correction = true;
  bool grad_averaging = true;
  std::optional<double> max_grad_norm = 1.0;
  bool trust_clip = false;
  bool always_adapt = false;
};

template <class Visitor>
void fields(Visitor& v, LambSettings& s) {
  v("lr", s.lr, "peak learning rate; schedule defines how it changes over the run", config::at_least(0));
  v("betas", s.betas, "decay rates of the two moments", config::in_half_open(0, 1));
  v("eps", s.eps, "added to the square root of the second moment", config::at_least(0));
  v("weight_decay", s.decay.weight_decay, "weight decay; part of the update, so it counts in the norm that the trust ratio divides by",
    config::at_least(0));
  v("no_decay", s.decay.no_decay,
    "parameters whose name contains one of these, and those of fewer than two dimensions, do not decay");
  v("bias_correction", s.bias_correction, "divide the moments by 1 - beta^t");
  v("grad_averaging", s.grad_averaging, "add (1 - beta1) g to the first moment; false: add g");
  v("max_grad_norm", s.max_grad_norm, "clip the global gradient norm inside the optimizer; null: do not",
    config::above(0));
  v("trust_clip", s.trust_clip, "limit the trust ratio to 1");
  v("always_adapt", s.always_adapt, "apply the trust ratio to parameters without weight decay too");
}

/// LAMB (You et al. 2020) as in NVIDIA's FusedLAMB and timm's Lamb. In the trust ratio |p| / |update|, the parameter's norm |p| is not
/// bounded, and the update includes weight decay.
class Lamb : public Optimizer {
 public:
  Lamb(std::vector<NamedParameter> parameters, const LambSettings& settings);

  /// Values of the last step, for logs and tests: the norm of all gradients before clipping (scalar), and the trust ratio by parameter
  /// index (scalars; undefined if the parameter had no gradient or is owned by other ranks).
  const at::Tensor& last_grad_norm() const { return grad_norm_; }
  const std::vector<at::Tensor>& last_trust_ratios() const { return trust_ratios_; }

 protected:
  void measure(const std::vector<Group>& groups) override;
  void update(std::vector<Group>& groups) override;
  bool uses_whole_sums() const override { return true; }

 private:
  void update_group(Group& group);
  bool adapts(const Group& group) const { return group.weight_decay != 0 || settings_.always_adapt; }
  at::Tensor whole_norms(const Group& group, const std::vector<at::Tensor>& values) const;

  LambSettings settings_;
  at::Tensor grad_norm_;
  std::vector<at::Tensor> trust_ratios_;
};

}  // namespace tessera
