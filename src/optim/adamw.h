#pragma once

#include <array>
#include <map>
#include <vector>

#include "kernels/adamw/adamw.h"
#include "src/ops/weight_copies.h"
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

/// AdamW with decoupled weight decay (Loshchilov & Hutter 2019), like torch.optim.AdamW. On a GPU, a kernel computes the update of float32
/// parameters, and PyTorch's fused operator does everywhere else. Update
/// clipping (Wortsman et al. 2023, "Stable and low-precision training", algorithm 2) divides each tensor's learning rate by max(1, RMS),
/// where RMS = sqrt(mean(g^2 / max(v, eps^2))), g is the gradient, and v is the bias-corrected second moment after it was updated with g.
class AdamW : public Optimizer {
 public:
  using Kernel = kernels::Status (*)(const kernels::AdamWUpdate& arguments, void* stream);

  AdamW(std::vector<NamedParameter> parameters, const AdamWSettings& settings, const HasMoment& has = {});

  /// Chooses the kernel that computes updates, or the fused operator if `kernel` is null. Without this call, the device decides.
  void use_kernel(Kernel kernel) { kernel_ = kernel; }
  /// The kernel reads and writes float32 moments, so the fused operator computes updates with rounded ones.
  void round_moments(std::uint64_t seed) override;
  bool applies_factor() const override { return kernel_ != nullptr; }
  WeightCopies* weight_copies() override { return kernel_ != nullptr ? &copies_ : nullptr; }

 protected:
  void update(std::vector<Group>& groups) override;
  bool uses_whole_sums() const override { return settings_.update_clipping; }
  bool uses_device_numbers() const override { return kernel_ != nullptr; }
  void after_update(const std::vector<std::size_t>& updated) override;

 private:
  /// What the kernel reads from device memory about the parameters of a group.
  struct Table {
    std::vector<kernels::AdamWTensor> tensors;
    std::int64_t chunks = 0;
    at::Tensor memory;
  };
  void run_kernel(const Group& group);
  const Table& table_of(const Group& group);
  /// Returns the learning rate of each tensor of the group after update clipping, as scalars on the group's device.
  std::vector<at::Tensor> clipped_rates(const Group& group) const;

  AdamWSettings settings_;
  Kernel kernel_ = nullptr;
  WeightCopies copies_;
  std::map<std::vector<std::size_t>, Table> tables_;  // by the parameters' indices
  std::vector<at::Tensor> old_tables_;                // memory of former tables, which a recorded update may still read
};

}  // namespace tessera
