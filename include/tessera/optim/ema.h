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
  v("decay", s.decay, "weight of the old average in each update", config::in_half_open(0, 1));
  v("warmup", s.warmup, "limit the decay at update t (1 = first) to (1 + t) / (10 + t), so that the initial weights are soon forgotten");
}

/// An exponential moving average of weights (Polyak & Juditsky 1992; like timm's ModelEmaV3). After each update, average := decay * average
/// + (1 - decay) * weight. Tensors that are not floating point are copied. Averages have the weights' dtype.
class Ema {
 public:
  /// Starts from the current weights: copies them, and keeps references to them for update().
  Ema(std::map<std::string, at::Tensor> weights, const EmaSettings& settings);
  /// Does the same, but stores the averages in the caller's tensors of the same names, such as the weights of another model.
  Ema(std::map<std::string, at::Tensor> weights, std::map<std::string, at::Tensor> averages,
      const EmaSettings& settings = {});

  /// Updates the averages with the current weights and the settings' decay. `step` is the number of the optimizer's update that produced
  /// these weights (1 is the first). found_inf is a float32 scalar on the device: if its value is 1, the update was skipped and the
  /// averages do not change; if it is undefined, the update was made.
  void update(std::int64_t step, const at::Tensor& found_inf = {});
  /// Does the same as update(), but with this decay instead of the settings' decay.
  void update_with(double decay, const at::Tensor& found_inf = {});
  /// Starts again from the current weights.
  void restart();

  /// The averages under the weights' names; the tensors are shared with this object.
  const std::map<std::string, at::Tensor>& averages() const { return averages_; }
  /// Sets the averages to the values in `averages`. Throws UserError naming `origin` and the tensor that is missing or has the wrong shape.
  void load(const std::map<std::string, at::Tensor>& averages, const std::string& origin);

  /// Swaps the weights' values with the averages'; a second call swaps them back.
  void swap();

 private:
  std::map<std::string, at::Tensor> weights_, averages_;
  EmaSettings settings_;
};

}  // namespace tessera
