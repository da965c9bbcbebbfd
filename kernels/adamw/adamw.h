#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/status.h"
#include "kernels/types.h"

/// AdamW with decoupled weight decay (Loshchilov & Hutter 2019) on many tensors, in one pass over their float32 elements:
///   g = factor * gradient, m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g^2,
///   parameter -= lr * decay * parameter + lr * (m / (1 - beta1^count)) / (sqrt(v / (1 - beta2^count)) + epsilon)
/// The pass also writes a bfloat16 copy of the parameters. The factor (gradient clipping), the learning rate, the weight decay and the count
/// are numbers in device memory, so a CUDA graph of the update stays right when they change.
///
/// The kernels run on a GPU; on the CPU, src/optim/adamw.cpp calls LibTorch's operator.
namespace tessera::kernels {

/// The tensors of one parameter, contiguous in memory and with elements in the same order.
struct AdamWTensor {
  float* parameter = nullptr;
  float* exp_avg = nullptr;     ///< m
  float* exp_avg_sq = nullptr;  ///< v
  std::uint16_t* copy = nullptr;  ///< out: the updated parameter in bfloat16; null: none
  std::int64_t elements = 0;
};

/// The list of the tensors as the kernel reads it from device memory. It is made once, for any number of updates.
struct AdamWTable {
  std::int64_t tensors = 0, chunks = 0;
  std::vector<unsigned char> bytes;  ///< to be copied to device memory, at an address that is a multiple of 16
};

/// Makes the table. It has space for what an update writes: the addresses of the gradients, and the update's numbers.
AdamWTable adamw_table(const std::vector<AdamWTensor>& tensors);

struct AdamWUpdate {
  std::int64_t tensors = 0, chunks = 0;  ///< those of the table
  void* table = nullptr;                 ///< a copy of the table's bytes in device memory
  /// [tensors], on the host: each parameter's gradient, in the same order of elements. The call copies the addresses.
  const float* const* gradients = nullptr;
  const double* learning_rate = nullptr;  ///< on the device
  const double* weight_decay = nullptr;   ///< on the device
  const double* count = nullptr;          ///< on the device: how many updates the parameters have had, including this one
  double learning_rate_scale = 1.0, weight_decay_scale = 1.0;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  const float* factor = nullptr;     ///< on the device: the factor of all gradients; null: 1
  const float* found_inf = nullptr;  ///< on the device: if the value is not 0, nothing changes. Null: 0
};

/// Returns a failure with a one-line message that names the first bad argument.
Status check(const AdamWUpdate& arguments);

/// This function runs on the current device, asynchronously on `stream` (a cudaStream_t).
namespace cuda {
Status adamw_update(const AdamWUpdate& arguments, void* stream);
}  // namespace cuda
namespace emulation {
Status adamw_update(const AdamWUpdate& arguments, void* stream);
}  // namespace emulation

}  // namespace tessera::kernels
