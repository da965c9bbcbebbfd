#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

/// Runs CUDA kernels on the host, so that the kernels' own source can be tested without a GPU. Each CUDA thread is a
/// fiber with its own stack. A barrier suspends a fiber until all the fibers that it waits for have arrived. Blocks run
/// one after another.
///
/// Besides wrong numbers, the emulation detects these mistakes:
///   - A barrier that not all threads reach stops the run with a message.
///   - A read before the wait for an asynchronous copy finds old data, because the copy happens at the wait.
///   - Access to a word at a misaligned address, which a GPU rejects, stops the run with a message.
///   - Shared memory that is read before it is written contains NaN.
///   - Races show when the threads and the blocks run in another order (set_schedule).
///
/// The emulation cannot find a missing memory fence, because a thread sees all writes of others at once.
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static  // only one block runs at a time
#define TESSERA_DYNAMIC_SHARED(name) unsigned char* const name = ::tessera::kernels::emulation::dynamic_shared()
#define threadIdx (::tessera::kernels::emulation::current().thread)
#define blockIdx (::tessera::kernels::emulation::current().block)
#define blockDim (::tessera::kernels::emulation::current().block_size)
#define gridDim (::tessera::kernels::emulation::current().grid_size)

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

namespace tessera::kernels::emulation {

struct Place {
  dim3 thread, block, block_size, grid_size;
};

/// The order in which the runnable threads of a block run, and in which the blocks of a grid run.
enum class Schedule { kForward, kReverse };
void set_schedule(Schedule schedule);

/// Calls `thread` once for every thread of the grid.
void run(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes, const std::function<void()>& thread);

const Place& current();
/// Returns the dynamic shared memory, which begins at a multiple of 1,024 bytes, and its size in bytes.
unsigned char* dynamic_shared();
std::size_t dynamic_shared_bytes();
void block_barrier();
void warp_barrier();
/// Suspends the current thread until ready() is true. If that never happens, the run stops with a message that has reason()'s result in it.
void wait_until(std::function<bool()> ready, std::function<std::string()> reason);
/// Stops the run with a message.
[[noreturn]] void fail(const std::string& message);

/// The values that the 32 lanes of a warp pass to a collective operation. exchange() passes this lane's value `mine`,
/// which has up to 32 bytes. Its result stays valid until the thread's next exchange.
struct Exchange {
  unsigned char value[32][32];
  template <class T>
  T get(unsigned lane) const {
    T result;
    std::memcpy(&result, value[lane], sizeof(T));
    return result;
  }
};
const Exchange& exchange(const void* mine, std::size_t bytes);

/// Stops the run, as a GPU would, if `address` is not a multiple of `bytes`.
void require_alignment(const void* address, std::size_t bytes);

/// Starts an asynchronous copy of 16 bytes by the current thread. The addresses `to` and `from` must be multiples of 16.
/// If `from` is null, the copy writes zeros.
void copy_later(void* to, const void* from);
void commit_copies();
void wait_for_copies(int groups_left);

}  // namespace tessera::kernels::emulation

inline void __syncthreads() {
  ::tessera::kernels::emulation::block_barrier();
}
inline void __threadfence() {}
/// Adds `value` to the number at `address`. Returns the number that was there before.
inline unsigned atomicAdd(unsigned* address, unsigned value) {
  const unsigned before = *address;
  *address += value;
  return before;
}
inline void __syncwarp(unsigned = 0xffffffffu) {
  ::tessera::kernels::emulation::warp_barrier();
}
template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  return ::tessera::kernels::emulation::exchange(&value, sizeof(T)).template get<T>(static_cast<unsigned>(lane) % 32);
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  const unsigned lane = ::tessera::kernels::emulation::current().thread.x % 32;
  return ::tessera::kernels::emulation::exchange(&value, sizeof(T)).template get<T>(lane ^ static_cast<unsigned>(mask));
}
inline unsigned __ballot_sync(unsigned, int predicate) {
  const auto& votes = ::tessera::kernels::emulation::exchange(&predicate, sizeof(predicate));
  unsigned result = 0;
  for (unsigned lane = 0; lane < 32; ++lane) result |= (votes.get<int>(lane) != 0 ? 1u : 0u) << lane;
  return result;
}
/// Returns the lanes that have the same value.
inline unsigned __match_any_sync(unsigned, int value) {
  const auto& values = ::tessera::kernels::emulation::exchange(&value, sizeof(value));
  unsigned result = 0;
  for (unsigned lane = 0; lane < 32; ++lane) result |= (values.get<int>(lane) == value ? 1u : 0u) << lane;
  return result;
}
inline int __popc(unsigned bits) {
  return __builtin_popcount(bits);
}
inline int __ffs(int bits) {
  return __builtin_ffs(bits);
}
