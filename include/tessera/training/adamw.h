#pragma once

#include <array>

#include <tessera/training/optimizer.h>

namespace tessera {

struct AdamWSettings {
  double lr = 5e-4;
  std::array<double, 2> betas = {0.9, 0.98};
  double eps = 1e-6;
  DecaySettings decay{.weight_decay = 0.2};
};

template <class Visitor>
void fields(Visitor& v, AdamWSettings& s) {
  v("lr", s.lr, "peak learning rate; schedule shapes it over the run", config::at_least(0));
  v("betas", s.betas, "decay rates of the two moments", config::in_half_open(0, 1));
  v("eps", s.eps, "added to the root of the second moment", config::at_least(0));
  v("weight_decay", s.decay.weight_decay, "decoupled weight decay", config::at_least(0));
  v("no_decay", s.decay.no_decay,
    "parameters whose name contains one of these, and those of fewer than two dimensions, do not decay");
}

/// Decoupled weight decay (Loshchilov & Hutter 2019), as torch.optim.AdamW, through PyTorch's fused operator.
class AdamW : public Optimizer {
 public:
  AdamW(std::vector<NamedParameter> parameters, const AdamWSettings& settings);

 protected:
  void update(std::vector<Group>& groups, std::int64_t step, double learning_rate) override;

 private:
  AdamWSettings settings_;
};

}  // namespace tessera
