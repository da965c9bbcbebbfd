#pragma once

#include <utility>
#include <vector>

#include <ATen/ATen.h>

namespace tessera {

/// Saves the values of tensors, for example of buffers that a trial pass changes, and restores the values when it is destroyed.
class TensorsKept {
 public:
  explicit TensorsKept(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {
    for (const at::Tensor& tensor : tensors_) values_.push_back(tensor.detach().clone());
  }
  ~TensorsKept() {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < tensors_.size(); ++i) tensors_[i].copy_(values_[i]);
  }
  TensorsKept(const TensorsKept&) = delete;
  TensorsKept& operator=(const TensorsKept&) = delete;

 private:
  std::vector<at::Tensor> tensors_, values_;
};

}  // namespace tessera
