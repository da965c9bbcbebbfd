#pragma once

#include <map>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

namespace tessera {

/// Looks at the result of every operator while it lives, and notes the first that makes a NaN out of none, or an
/// infinity out of finite values. Slow (each operator is followed by a test of its tensors): for examining one step.
class AnomalyDetector {
 public:
  /// names: of parameters, to say where in the model an operator stands.
  explicit AnomalyDetector(const std::map<std::string, at::Tensor>& names);
  ~AnomalyDetector();
  AnomalyDetector(const AnomalyDetector&) = delete;
  AnomalyDetector& operator=(const AnomalyDetector&) = delete;

  /// "aten::log gave -inf (3 of 64 values, [8, 8] float32) in the forward pass, after visual.proj; aten::sub gave NaN
  /// (...) ..."; empty when all was finite.
  std::string report() const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
