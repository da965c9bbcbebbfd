#pragma once

#include <array>

#include <tessera/optim/optimizer.h>

namespace tessera {

struct AdamWSettings {
  double lr = 5e-4;
  std::array<double, 2> betas = {0.9, 0.98};
  double eps = 1e-6;
  DecaySettings decay{.weight_decay = 0.2};
  bool update_clipping = false;
};

template <class Visitor>
void fields(Visitor& v, AdamWSettings& s) {
  v("lr", s.lr, "peak learning rate; schedule defines how it changes over the run", config::at_least(0));
  v("betas", s.betas, "decay rates of the two moments", config::in_half_open(0, 1));
  v("eps", s.eps, "added to the square root of the second moment", config::at_least(0));
  v("weight_decay", s.decay.weight_decay, "decoupled weight decay", config::at_least(0));
  v("no_decay", s.decay.no_decay,
    "parameters whose name contains one of these, and those of fewer than two dimensions, do not decay");
  v("update_clipping", s.update_clipping,
    "StableAdamW: a smaller step for a tensor whose gradient is large compared with its second moment");
}

/// AdamW with decoupled weight decay (Loshchilov & Hutter 2019), like torch.optim.AdamW, computed by PyTorch's fused operator. Update
/// clipping (Wortsman et al. 2023, "Stable and low-precision training", algorithm 2) divides each tensor's learning rate by max(1, RMS),
/// where RMS = sqrt(mean(g^2 / max(v, eps^2))), g is the gradient, and v is the bias-corrected second moment after it was updated with g.
class AdamW : public Optimizer {
 public:
  AdamW(std::vector<NamedParameter> parameters, const AdamWSettings& settings);

 protected:
  void update(std::vector<Group>& groups) override;

 private:
  /// Returns the learning rate of each tensor of the group after update clipping, as scalars on the group's device.
  std::vector<at::Tensor> clipped_rates(const Group& group) const;

  AdamWSettings settings_;
};

}  // namespace tessera
