#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/activation/activation.h"
#include "kernels/parallel.h"
#include "kernels/status.h"
#include "kernels/types.h"

namespace tessera::kernels::cpu {

// Linear maps y = activation(x weight^T + bias) on the CPU, whose weights are rounded and rearranged once, for inference. A row of y has the
// same bits however many other rows x has, and for any number of threads.

/// A map's sizes, and the type of the products' operands. Sums, bias, activation and result are float32.
struct PackedMapShape {
  std::int64_t in = 0, out = 0;
  DataType type = DataType::kFloat32;
};

/// Whether packed maps are the fastest on this machine: they need AVX2 for float32, and avx512_bf16 for bfloat16. LibTorch multiplies bfloat16
/// faster on machines with AMX.
bool has_packed_map(DataType type);

/// Bytes of a packed weight, which must be aligned to 64 bytes.
std::size_t packed_weight_bytes(const PackedMapShape& shape);
/// Packs a weight [out, in], contiguous float32.
void pack_weight(const PackedMapShape& shape, const float* weight, void* packed, const Parallel& parallel);

struct PackedMapCall {
  PackedMapShape shape;
  std::int64_t rows = 0;
  const float* x = nullptr;      // [rows, in], contiguous
  const void* weight = nullptr;  // of pack_weight()
  const float* bias = nullptr;   // [out]; null: 0
  bool activated = false;
  Activation activation = Activation::kGelu;
  float* y = nullptr;         // [rows, out], contiguous
  void* workspace = nullptr;  // of packed_map_workspace() bytes, aligned to 64 bytes
};
std::size_t packed_map_workspace(const PackedMapShape& shape, std::int64_t rows);

/// Fails if has_packed_map() is false.
Status packed_map(const PackedMapCall& call, const Parallel& parallel);

}  // namespace tessera::kernels::cpu
