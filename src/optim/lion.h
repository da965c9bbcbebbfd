#pragma once

#include <array>

#include <tessera/optim/optimizer.h>

namespace tessera {

struct LionSettings {
  double lr = 1e-4;
  std::array<double, 2> betas = {0.9, 0.99};
  DecaySettings decay{.weight_decay = 1.0};
};

template <class Visitor>
void fields(Visitor& v, LionSettings& s) {
  v("lr", s.lr, "peak learning rate, 3 to 10 times smaller than AdamW's; schedule defines how it changes over the run", config::at_least(0));
  v("betas", s.betas, "shares of the moment in the update's direction and in the next moment", config::in_half_open(0, 1));
  v("weight_decay", s.decay.weight_decay, "decoupled weight decay; it is multiplied by lr, so it is 3 to 10 times greater than AdamW's",
    config::at_least(0));
  v("no_decay", s.decay.no_decay,
    "parameters whose name contains one of these, and those of fewer than two dimensions, do not decay");
}

/// Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", arXiv 2302.06675, algorithm 2), with the gradient g, the moment
/// m, the learning rate and weight decay lambda: weight -= lr * (sign(beta1 m + (1 - beta1) g) + lambda * weight), then
/// m = beta2 m + (1 - beta2) g.
class Lion : public Optimizer {
 public:
  Lion(std::vector<NamedParameter> parameters, const LionSettings& settings);

 protected:
  void update(std::vector<Group>& groups) override;

 private:
  LionSettings settings_;
};

}  // namespace tessera
