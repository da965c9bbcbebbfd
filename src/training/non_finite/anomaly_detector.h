#pragma once

#include <map>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

namespace tessera {

/// Checks the result of every operator during its lifetime and records the first one that produces a NaN from inputs without NaN, or
/// an infinity from finite inputs. Slow, because each operator is followed by a check of its tensors: use it to examine one step.
class AnomalyDetector {
 public:
  /// names: parameters by name, to locate an operator in the model.
  explicit AnomalyDetector(const std::map<std::string, at::Tensor>& names);
  ~AnomalyDetector();
  AnomalyDetector(const AnomalyDetector&) = delete;
  AnomalyDetector& operator=(const AnomalyDetector&) = delete;

  /// Returns "aten::log gave infinity (3 of 64 values, [8, 8] Float) in the forward pass, after visual.proj; aten::sub gave NaN
  /// (...) ..."; empty if everything was finite.
  std::string report() const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
