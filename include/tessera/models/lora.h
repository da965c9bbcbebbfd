#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include <tessera/config/fields.h>

namespace tessera {

/// Low-rank adapters (LoRA, Hu et al. 2022): a linear map W x of a transformer block gives
/// W x + alpha / rank * B A dropout(x), with A [rank, in] and B [out, rank] trained and W as it was.
struct LoraSettings {
  std::int64_t rank = 8;
  double alpha = 8;
  double dropout = 0;
  std::vector<std::string> layers = {"query", "value"};
  std::vector<std::int64_t> blocks;
  std::vector<std::string> trained;
};

template <class Visitor>
void fields(Visitor& v, LoraSettings& s) {
  v("rank", s.rank, "width between the two matrices of an adapter", config::at_least(1));
  v("alpha", s.alpha, "an adapter's update is multiplied by alpha / rank (PEFT's lora_alpha)", config::above(0));
  v("dropout", s.dropout,
    "share of an adapter's input that is 0 in training, drawn for each token; adapters of one input (query, key, value) see the same",
    config::in_half_open(0, 1));
  v("layers", s.layers,
    "the linear maps with an adapter: query, key, value and out of attention, mlp_in (with the gate, where there is one) and mlp_out",
    config::one_of({"query", "key", "value", "out", "mlp_in", "mlp_out"}));
  v("blocks", s.blocks, "numbers of the blocks with adapters, from 0; []: all", config::at_least(0));
  v("trained", s.trained,
    "parameters of the encoder that are trained beside the adapters (PEFT's modules_to_save): patterns of names ([visual.ln_post.*])");
}

/// At least one layer.
std::optional<config::Problem> validate(const LoraSettings& settings);

/// A linear map of a module, or one of those that a fused weight holds.
struct LinearMap {
  std::string layer;      // as LoraSettings::layers calls it
  std::string name;       // of its adapter: the parameters lora_NAME_a and lora_NAME_b
  std::string parameter;  // the weight's name in the module, "in_proj_weight"
  std::int64_t first = 0, rows = 0;  // which rows of it
};

/// One adapter.
struct LoraAdapter {
  LinearMap map;
  at::Tensor a, b;
  double scale = 1;  // alpha / rank
};

/// A module whose linear maps take adapters. The module calls add_updates() behind its maps, which does nothing as long as
/// there are no adapters.
class Adaptable {
 public:
  virtual ~Adaptable() = default;
  virtual std::vector<LinearMap> linear_maps() const = 0;

  /// Gives a map an adapter, on the device and of the dtype of its weight. A is drawn from the default generator of the CPU
  /// (uniform in +-in^-1/2, as PEFT draws it), B is 0: nothing changes yet. `self` is this module. Throws c10::Error where
  /// the rank is above what the map has.
  void add_adapter(torch::nn::Module& self, const LinearMap& map, const LoraSettings& settings);
  const std::vector<LoraAdapter>& adapters() const { return adapters_; }
  /// Whether training draws random numbers for each token (see token_keys()).
  bool drops_tokens_inputs() const { return dropout_ > 0 && !adapters_.empty(); }
  /// While true, the adapters are part of the weights already, and add_updates() adds nothing.
  void set_merged(bool merged) { merged_ = merged; }

 protected:
  struct Output {
    const char* name;  // of the map
    at::Tensor& value;  // [..., out] what it gives
  };
  /// Adds to what the maps of one input x [..., in] give what their adapters give. With dropout, a RowRngScope of the
  /// sequence's tokens must be there; left_out: x [B, N - left_out, in] lacks the first tokens of each row.
  void add_updates(const at::Tensor& x, std::initializer_list<Output> outputs, bool training, std::int64_t left_out = 0) const;

 private:
  at::Tensor dropped(const at::Tensor& x, std::int64_t left_out) const;

  std::vector<LoraAdapter> adapters_;
  double dropout_ = 0;
  bool merged_ = false;
};

}  // namespace tessera
