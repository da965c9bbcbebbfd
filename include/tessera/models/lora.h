#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include <tessera/config/fields.h>

namespace tessera {

/// Low-rank adapters (LoRA, Hu et al. 2022): a linear map W x of a transformer block becomes W x + alpha / rank * B A
/// dropout(x), where A [rank, in] and B [out, rank] are trained and W stays fixed.
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
  v("rank", s.rank, "rank of an adapter's two matrices", config::at_least(1));
  v("alpha", s.alpha, "an adapter's update is multiplied by alpha / rank (PEFT's lora_alpha)", config::above(0));
  v("dropout", s.dropout,
    "dropout on an adapter's input in training, drawn for each token; adapters with the same input (query, key, value) share the draw",
    config::in_half_open(0, 1));
  v("layers", s.layers,
    "the linear maps with an adapter: query, key, value and out of attention, mlp_in (including a gate) and mlp_out",
    config::one_of({"query", "key", "value", "out", "mlp_in", "mlp_out"}));
  v("blocks", s.blocks, "indices of the blocks with adapters, from 0; []: all", config::at_least(0));
  v("trained", s.trained,
    "parameters of the encoder that are trained in addition to the adapters (PEFT's modules_to_save): patterns of names "
    "([visual.ln_post.*])");
}

/// Rejects an empty list of layers.
std::optional<config::Problem> validate(const LoraSettings& settings);

/// A linear map of a module: a whole weight, or some rows of a weight that fuses several maps.
struct LinearMap {
  std::string layer;      // the kind of map, as LoraSettings::layers names it, such as "query"
  std::string name;       // the adapter's name: its parameters are lora_NAME_a and lora_NAME_b
  std::string parameter;  // the weight's name in the module, such as "in_proj_weight"
  std::int64_t first = 0, rows = 0;  // the map occupies the rows first, ..., first + rows - 1 of the weight `parameter`
};

/// A low-rank adapter of one linear map.
struct LoraAdapter {
  LinearMap map;
  at::Tensor a, b;
  double scale = 1;  // alpha / rank
};

/// A module whose linear maps can have adapters. The module calls add_updates() after its maps; without adapters, add_updates() does
/// nothing.
class Adaptable {
 public:
  virtual ~Adaptable() = default;
  virtual std::vector<LinearMap> linear_maps() const = 0;

  /// Adds an adapter to a linear map, with the device and the dtype of the map's weight. A is drawn from the CPU's default generator
  /// (uniform from -in^-1/2 to in^-1/2, as in PEFT), and B is 0, so the map's output does not change yet. `self` is this object as a torch
  /// module. Throws c10::Error if the map is too small for the rank.
  void add_adapter(torch::nn::Module& self, const LinearMap& map, const LoraSettings& settings);
  const std::vector<LoraAdapter>& adapters() const { return adapters_; }
  /// Whether training applies dropout to the inputs of adapters. If so, the dropout mask of each token is drawn with the token's key
  /// (token_keys()).
  bool drops_tokens_inputs() const { return dropout_ > 0 && !adapters_.empty(); }
  /// If true, the weights already contain the adapters, and add_updates() adds nothing.
  void set_merged(bool merged) { merged_ = merged; }

 protected:
  struct Output {
    const char* name;  // the map's name
    at::Tensor& value;  // [..., out], the map's output
  };
  /// Adds the adapters' outputs to the outputs of the maps that share the input x [..., in]. With dropout, call this inside a RowRngScope
  /// with the tokens' keys (token_keys()). left_out: the number of leading tokens that are missing in each row of x [B, N - left_out, in].
  void add_updates(const at::Tensor& x, std::initializer_list<Output> outputs, bool training, std::int64_t left_out = 0) const;

 private:
  at::Tensor dropped(const at::Tensor& x, std::int64_t left_out) const;

  std::vector<LoraAdapter> adapters_;
  double dropout_ = 0;
  bool merged_ = false;
};

}  // namespace tessera
