#pragma once

#include <map>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

namespace tessera {

/// While an object of this class exists, it checks the results of all operators. It records the first operator that produces a NaN
/// from inputs without NaN, and the first that produces an infinity from finite inputs. Checking makes every operator slow, so use
/// it only to examine a single step.
class AnomalyDetector {
 public:
  /// `names` maps names to parameters. Reports use these names to say where in the model an operator is.
  explicit AnomalyDetector(const std::map<std::string, at::Tensor>& names);
  ~AnomalyDetector();
  AnomalyDetector(const AnomalyDetector&) = delete;
  AnomalyDetector& operator=(const AnomalyDetector&) = delete;

  /// Returns the findings, such as "aten::log gave infinity (3 of 64 values, [8, 8] Float) in the forward pass, after visual.proj;
  /// aten::sub gave NaN (...) ...". Returns an empty string if everything was finite.
  std::string report() const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
