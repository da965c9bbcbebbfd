#pragma once

#include <tessera/optim/optimizer.h>

namespace tessera {

struct SgdSettings {
  double lr = 0.1;
  double momentum = 0.9;
  bool nesterov = false;
  DecaySettings decay;
};

template <class Visitor>
void fields(Visitor& v, SgdSettings& s) {
  v("lr", s.lr, "peak learning rate; schedule defines how it changes over the run", config::at_least(0));
  v("momentum", s.momentum, "share of the previous update that is kept", config::in_half_open(0, 1));
  v("nesterov", s.nesterov, "use Nesterov momentum");
  v("weight_decay", s.decay.weight_decay, "added to the gradient, times the weight", config::at_least(0));
  v("no_decay", s.decay.no_decay,
    "parameters whose name contains one of these, and those of fewer than two dimensions, do not decay");
}

/// Rejects nesterov without momentum.
std::optional<config::Problem> validate(const SgdSettings& settings);

/// Stochastic gradient descent with momentum, like torch.optim.SGD (dampening 0), computed by PyTorch's fused operator.
class Sgd : public Optimizer {
 public:
  Sgd(std::vector<NamedParameter> parameters, const SgdSettings& settings);

 protected:
  void update(std::vector<Group>& groups) override;

 private:
  SgdSettings settings_;
};

}  // namespace tessera
