#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include <tessera/config/fields.h>

namespace tessera {

struct EmaSettings {
  double decay = 0.9999;
  bool warmup = true;
};

template <class Visitor>
void fields(Visitor& v, EmaSettings& s) {
  v("decay", s.decay, "share of the old average that stays at each update", config::in_half_open(0, 1));
  v("warmup", s.warmup, "at update t (1 = first) no more than (1 + t) / (10 + t): the beginning is soon forgotten");
}

/// An exponential moving average of weights (Polyak & Juditsky 1992; as timm's ModelEmaV3): average := decay * average +
/// (1 - decay) * weight after each update. Tensors that are not floating point are copied. Kept in the weights' dtype.
class Ema {
 public:
  /// Starts from the weights as they are. Shares nothing with them but remembers them.
  Ema(std::map<std::string, at::Tensor> weights, const EmaSettings& settings);
  /// The same with the averages in tensors of the caller's, by the same names: another model's weights.
  Ema(std::map<std::string, at::Tensor> weights, std::map<std::string, at::Tensor> averages,
      const EmaSettings& settings = {});

  /// Takes the weights in, as they stand after update `step` (1 = first), with the decay of the settings. found_inf:
  /// float32 scalar on the device; where it is 1, there was no such update and the averages stay. Undefined: there was.
  void update(std::int64_t step, const at::Tensor& found_inf = {});
  /// The same with this decay.
  void update_with(double decay, const at::Tensor& found_inf = {});
  /// Starts again from the weights as they are.
  void restart();

  /// The averages under the weights' names; shared with this object.
  const std::map<std::string, at::Tensor>& averages() const { return averages_; }
  /// Copies averages in. Throws UserError naming `origin` and the tensor that is missing or mis-shaped.
  void load(const std::map<std::string, at::Tensor>& averages, const std::string& origin);

  /// Exchanges the weights' values with the averages'; twice is none.
  void swap();

 private:
  std::map<std::string, at::Tensor> weights_, averages_;
  EmaSettings settings_;
};

}  // namespace tessera
