#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>

namespace tessera {

/// Copies of a model's float32 weights in the form in which the CPU multiplies by them fastest, for inference (kernels/packed_map). A weight
/// is copied when it is first used, and again if its version (Tensor::_version) has changed. Thread-safe.
class PackedWeights {
 public:
  /// With bfloat16, the operands of products are rounded to bfloat16; inputs and results are float32 for both types. A machine without
  /// instructions for products of bfloat16 (avx512_bf16), and one that multiplies tiles (AMX), uses LibTorch's products.
  explicit PackedWeights(at::ScalarType type) : type_(type) {}

  /// While a scope exists, map() in its thread uses the copies. Does nothing if `weights` is null.
  class Scope {
   public:
    explicit Scope(PackedWeights* weights);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    PackedWeights* outer_;
  };
  static bool in_scope();

  /// Returns x weight^T + bias for x [..., in], activated if an activation (src/ops/activation.h) is named, as float32 [..., out]. `weight`
  /// is a parameter or a view of one, [out, ...] with `in` values per row. Each row has the same bits in every batch. Returns an undefined tensor outside a
  /// scope, and if gradients are recorded, a tensor is not float32 on the CPU, or this machine or the kernel lacks what the map needs.
  static at::Tensor map(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const std::string& activation = "");

 private:
  struct Entry {
    at::Tensor weight, copy;
    std::int64_t version = -1;
  };
  at::Tensor copy_of(const at::Tensor& weight, bool packed);

  const at::ScalarType type_;
  std::mutex mutex_;
  std::map<std::pair<const void*, std::int64_t>, Entry> entries_;  // by address and first stride, which tell a weight from its transpose
};

}  // namespace tessera
