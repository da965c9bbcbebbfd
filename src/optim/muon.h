#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/optim/adamw.h"

namespace tessera {

struct MuonSettings {
  double lr = 5e-4;
  double momentum = 0.95;
  bool nesterov = true;
  std::int64_t ns_steps = 5;
  std::string ns_type = "bfloat16";
  std::string adjust_lr_fn = "match_rms_adamw";
  DecaySettings decay{.weight_decay = 0.2};
  std::vector<std::string> adamw_for = {"*embed*", "*_emb", "visual.proj*", "text_projection*", "*head*", "*group_token*", "*probe", "*.query", "objective.*"};
  std::optional<double> adamw_lr;
  std::array<double, 2> betas = {0.9, 0.98};
  double eps = 1e-6;
};

template <class Visitor>
void fields(Visitor& v, MuonSettings& s) {
  v("lr", s.lr, "peak learning rate; schedule defines how it changes over the run", config::at_least(0));
  v("momentum", s.momentum, "decay rate of a matrix's moment", config::in_half_open(0, 1));
  v("nesterov", s.nesterov, "use Nesterov momentum");
  v("ns_steps", s.ns_steps, "number of Newton-Schulz iterations", config::in_range(1, 99));
  v("ns_type", s.ns_type, "type in which these iterations compute", config::one_of({"bfloat16", "float32"}));
  v("adjust_lr_fn", s.adjust_lr_fn,
    "factor of the learning rate of a matrix with m rows and n columns; original: sqrt(max(1, m / n)) (torch.optim.Muon's default); "
    "match_rms_adamw: 0.2 sqrt(max(m, n)), with which AdamW's learning rate and weight decay fit",
    config::one_of({"original", "match_rms_adamw"}));
  v("weight_decay", s.decay.weight_decay, "decoupled weight decay of all parameters", config::at_least(0));
  v("no_decay", s.decay.no_decay,
    "parameters whose name contains one of these, and those of fewer than two dimensions, do not decay");
  v("adamw_for", s.adamw_for,
    "matrices that AdamW updates, as patterns of names, or image or text (a whole tower); AdamW also updates all parameters that are not "
    "matrices (biases, norms, convolutions)");
  v("adamw_lr", s.adamw_lr, "AdamW's peak learning rate; null: lr", config::at_least(0));
  v("betas", s.betas, "AdamW's decay rates of the two moments", config::in_half_open(0, 1));
  v("eps", s.eps, "AdamW's number that is added to the square root of the second moment", config::at_least(0));
}

/// Rejects adamw_lr if lr is 0.
std::optional<config::Problem> validate(const MuonSettings& settings);

/// Muon (Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; scaling of the update by Liu et al. 2025, arXiv
/// 2502.16982), like torch.optim.Muon of PyTorch 2.9 and later. For a matrix with the gradient g:
/// exp_avg = momentum * exp_avg + (1 - momentum) * g; u = (1 - momentum) * g + momentum * exp_avg with Nesterov momentum, else exp_avg;
/// weight = (1 - lr * weight decay) * weight - lr * factor * orthogonalized(u). AdamW updates all other parameters. These have a second
/// moment, matrices have none.
class Muon : public AdamW {
 public:
  Muon(std::vector<NamedParameter> parameters, const MuonSettings& settings);

 protected:
  void update(std::vector<Group>& groups) override;
  /// The step of a matrix is computed from all of it.
  bool divisible(std::size_t index) const override;

 private:
  /// Updates a matrix. An update needs the whole matrix, its gradient and its moment: a rank cannot update a part of it.
  void update_matrix(const Group& group, std::size_t position) const;

  MuonSettings settings_;
};

/// Returns approximately U V^T for a matrix U S V^T: its singular values are moved to between about 0.7 and 1.2 by `steps` iterations of
/// Newton and Schulz with torch.optim.Muon's coefficients, computed in the given type. The result has this type and the matrix's shape. The
/// result for zero is zero.
at::Tensor orthogonalized(const at::Tensor& matrix, std::int64_t steps, at::ScalarType type);

}  // namespace tessera
