#include "kernels/emulation/hopper_emulation.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/emulation/cuda_emulation.h"

namespace tessera::kernels::emulation {
namespace {

struct TileCopy {
  unsigned char* shared;
  TileSource array;
  int box_rows;
  std::array<int, 4> at;
  std::size_t bytes() const { return static_cast<std::size_t>(box_rows) * kTileRowBytes; }
};

struct Barrier {
  unsigned arrivals, pending, phase = 0;
  std::size_t expected_bytes = 0, copied_bytes = 0;
  std::vector<TileCopy> copies;
};

struct NamedBarrier {
  unsigned threads = 0, arrived = 0, generation = 0;
};

// The sums of products that a thread has not waited for. While `pending` is not 0, the thread itself sees NaN.
struct HiddenSums {
  std::vector<float> values;
  int pending = 0;
};

struct Thread {
  std::vector<TileCopy> open_stores;
  std::vector<std::vector<TileCopy>> stores;
  std::vector<Product> open_products;
  std::vector<std::vector<Product>> products;
  std::map<float*, HiddenSums> sums;
  std::size_t multiplications = 0;
  bool fenced = false;
};

struct Block {
  std::map<std::uint64_t*, Barrier> barriers;
  NamedBarrier named[16];
  std::vector<Thread> threads;
  std::vector<std::vector<std::array<std::uint64_t, 3>>> instructions;  // of each warpgroup
};

Block& block() {
  static Block instance;
  return instance;
}

std::size_t thread_index() {
  return current().thread.x;
}
Thread& thread() {
  return block().threads[thread_index()];
}

std::uint64_t marker(const std::uint64_t* barrier) {
  return 0x7e55e7ab00000000u ^ reinterpret_cast<std::uintptr_t>(barrier);
}

Barrier& find(std::uint64_t* barrier) {
  require_alignment(barrier, 8);
  const auto found = block().barriers.find(barrier);
  if (found == block().barriers.end()) fail("a barrier is used before its initialization");
  if (*barrier != marker(barrier)) fail("the memory of a barrier was overwritten");
  return found->second;
}

/// Calls visit(the address in global memory, or null outside of the array; the address in shared memory) for each element of the box.
template <class Visit>
void for_each_element(const TileCopy& copy, Visit visit) {
  const TileSource& array = copy.array;
  const auto inside = [](std::int64_t index, std::int64_t size) { return index >= 0 && index < size; };
  const bool matrix_exists = inside(copy.at[2], array.heads) && inside(copy.at[3], array.batches);
  const std::uint32_t start = shared_address(copy.shared);
  for (int row = 0; row < copy.box_rows; ++row) {
    for (int column = 0; column < kTileColumns; ++column) {
      const std::int64_t c = copy.at[0] + column, r = copy.at[1] + row;
      const bool exists = matrix_exists && inside(c, array.columns) && inside(r, array.rows);
      const std::int64_t offset = c + r * array.row_stride + copy.at[2] * array.head_stride + copy.at[3] * array.batch_stride;
      visit(exists ? static_cast<const unsigned char*>(array.data) + 2 * offset : nullptr,
            dynamic_shared() + swizzled(start + static_cast<std::uint32_t>(row * kTileRowBytes + 2 * column)));
    }
  }
}

/// Checks what a copy needs of its place in shared memory.
void check_tile(const void* tile, int box_rows) {
  require_alignment(tile, kTileRowBytes);
  if (shared_address(tile) + static_cast<std::size_t>(box_rows) * kTileRowBytes > dynamic_shared_bytes())
    fail("a tile ends outside of the block's shared memory");
}

/// Ends the barrier's phase if all arrivals and bytes are there. Copies happen now, and not earlier. This function is called as late as
/// possible: when a thread waits for the phase, or begins the next one.
void complete(Barrier& barrier) {
  if (barrier.pending != 0 || barrier.expected_bytes != barrier.copied_bytes) return;
  for (const TileCopy& copy : barrier.copies) {
    for_each_element(copy, [](const unsigned char* from, unsigned char* to) {
      if (from != nullptr) {
        std::memcpy(to, from, 2);
      } else {
        std::memset(to, 0, 2);
      }
    });
  }
  barrier.copies.clear();
  barrier.pending = barrier.arrivals;
  barrier.expected_bytes = barrier.copied_bytes = 0;
  ++barrier.phase;
}

void check_bytes(const Barrier& barrier) {
  if (barrier.pending == 0 && barrier.copied_bytes > barrier.expected_bytes)
    fail("copies bring " + std::to_string(barrier.copied_bytes) + " bytes, but their barrier expects " +
         std::to_string(barrier.expected_bytes));
}

float element(std::uint32_t address) {
  if (address + 2 > dynamic_shared_bytes()) fail("an operand is outside of the block's shared memory");
  std::uint16_t bits;
  std::memcpy(&bits, dynamic_shared() + address, sizeof(bits));
  return bfloat16_to_float(bits);
}

void multiply(const Product& product, std::vector<float>& sums) {
  const int index = static_cast<int>(thread_index());
  float a[2][16];
  for (int lower = 0; lower < 2; ++lower) {
    const auto row = static_cast<std::uint32_t>(sum_row(index, 2 * lower));
    for (std::uint32_t k = 0; k < 16; ++k) {
      const std::uint32_t word = product.words[lower][k / 2];
      a[lower][k] = product.a_in_registers ? bfloat16_to_float(static_cast<std::uint16_t>(k % 2 == 0 ? word : word >> 16))
                                           : element(element_address(product.a, product.a_depth, row, k));
    }
  }
  for (int i = 0; i < product.columns / 2; i += 4) {
    for (int e = 0; e < 2; ++e) {
      const auto column = static_cast<std::uint32_t>(sum_column(index, i + e));
      float b[16];
      for (std::uint32_t k = 0; k < 16; ++k) b[k] = element(element_address(product.b, product.b_depth, column, k));
      for (int lower = 0; lower < 2; ++lower) {
        float& sum = sums[static_cast<std::size_t>(i + 2 * lower + e)];
        if (!product.adds) sum = 0.0f;
        for (int k = 0; k < 16; ++k) sum += a[lower][k] * b[k];
      }
    }
  }
}

bool all_nan(const float* sums, std::size_t count) {
  return std::all_of(sums, sums + count, [](float sum) { return sum != sum; });
}

}  // namespace

std::uint32_t shared_address(const void* pointer) {
  const auto* const byte = static_cast<const unsigned char*>(pointer);
  if (byte < dynamic_shared() || byte >= dynamic_shared() + dynamic_shared_bytes()) fail("an address outside of the block's shared memory");
  return static_cast<std::uint32_t>(byte - dynamic_shared());
}

void start_barrier(std::uint64_t* barrier, unsigned arrivals) {
  require_alignment(barrier, 8);
  shared_address(barrier);
  block().barriers[barrier] = Barrier{arrivals, arrivals, 0, 0, 0, {}};
  *barrier = marker(barrier);
}

void arrive(std::uint64_t* barrier, unsigned bytes) {
  Barrier& state = find(barrier);
  complete(state);
  if (state.pending == 0) fail("more arrivals than a barrier expects");
  state.expected_bytes += bytes;
  --state.pending;
  check_bytes(state);
}

void wait(std::uint64_t* barrier, unsigned parity) {
  find(barrier);
  const auto ready = [=] {
    Barrier& state = find(barrier);
    complete(state);
    return state.phase % 2 != parity;
  };
  wait_until(ready, [=] {
    const Barrier& state = find(barrier);
    const auto missing = static_cast<long long>(state.expected_bytes) - static_cast<long long>(state.copied_bytes);
    return "a barrier waits for " + std::to_string(state.pending) + " arrivals and " + std::to_string(missing) + " bytes";
  });
}

void load_tile(void* to, const TileSource& source, int box_rows, std::uint64_t* barrier, const int (&at)[4]) {
  check_tile(to, box_rows);
  Barrier& state = find(barrier);
  complete(state);
  const TileCopy copy{static_cast<unsigned char*>(to), source, box_rows, std::to_array(at)};
  std::memset(to, 0xff, copy.bytes());
  state.copies.push_back(copy);
  state.copied_bytes += copy.bytes();
  check_bytes(state);
}

void store_tile(const TileSource& target, int box_rows, const void* from, const int (&at)[4]) {
  check_tile(from, box_rows);
  thread().open_stores.push_back(
      {const_cast<unsigned char*>(static_cast<const unsigned char*>(from)), target, box_rows, std::to_array(at)});
}
void commit_stores() {
  thread().stores.push_back(std::exchange(thread().open_stores, {}));
}
void wait_for_stores(int groups_left) {
  std::vector<std::vector<TileCopy>>& groups = thread().stores;
  while (groups.size() > static_cast<std::size_t>(groups_left)) {
    for (const TileCopy& copy : groups.front()) {
      for_each_element(copy, [](const unsigned char* to, const unsigned char* from) {
        if (to != nullptr) std::memcpy(const_cast<unsigned char*>(to), from, 2);
      });
    }
    groups.erase(groups.begin());
  }
}

void named_barrier(unsigned id, unsigned threads, bool waits) {
  if (id < 1 || id > 15 || threads == 0 || threads % 32 != 0) fail("a named barrier needs a number from 1 to 15 and whole warps");
  NamedBarrier& barrier = block().named[id];
  if (barrier.arrived != 0 && barrier.threads != threads) fail("threads disagree on the size of a named barrier");
  barrier.threads = threads;
  const unsigned generation = barrier.generation;
  if (++barrier.arrived == threads) {
    barrier.arrived = 0;
    ++barrier.generation;
  }
  if (!waits) return;
  wait_until([&barrier, generation] { return barrier.generation != generation; },
             [&barrier, id] {
               return "named barrier " + std::to_string(id) + " has " + std::to_string(barrier.arrived) + " of " +
                      std::to_string(barrier.threads) + " threads";
             });
}

void fence_products() {
  thread().fenced = true;
}

void multiply_later(const Product& product) {
  Thread& mine = thread();
  if (!mine.fenced) fail("a product without fence_products() after the last commit_products()");
  for (const Operand operand : {product.a, product.b}) {
    if (is_tile(operand) && (operand.bits & 0x38u) != 0) fail("a tile must begin at a multiple of 1024 bytes");
  }
  const std::uint64_t kind = static_cast<std::uint64_t>(product.columns) << 8 | (product.adds ? 1u : 0u) |
                             (product.a_in_registers ? 2u : 0u) | (product.a_depth == Depth::kAlongRows ? 4u : 0u) |
                             (product.b_depth == Depth::kAlongRows ? 8u : 0u);
  const std::array<std::uint64_t, 3> instruction = {product.a_in_registers ? 0 : product.a.bits, product.b.bits, kind};
  std::vector<std::array<std::uint64_t, 3>>& instructions = block().instructions[thread_index() / 128];
  if (mine.multiplications == instructions.size()) instructions.push_back(instruction);
  if (instructions[mine.multiplications++] != instruction) fail("the threads of a warpgroup compute different products");
  const auto count = static_cast<std::size_t>(product.columns / 2);
  HiddenSums& hidden = mine.sums[product.sums];
  if (hidden.pending++ == 0) {
    hidden.values.assign(product.sums, product.sums + count);
  } else if (hidden.values.size() != count || !all_nan(product.sums, count)) {
    fail("the sums of a product were changed before the wait");
  }
  std::fill_n(product.sums, count, std::numeric_limits<float>::quiet_NaN());
  mine.open_products.push_back(product);
}

void commit_products() {
  thread().products.push_back(std::exchange(thread().open_products, {}));
  thread().fenced = false;
}

void wait_for_products(int groups_left) {
  Thread& mine = thread();
  while (mine.products.size() > static_cast<std::size_t>(groups_left)) {
    for (const Product& product : mine.products.front()) {
      HiddenSums& hidden = mine.sums[product.sums];
      multiply(product, hidden.values);
      --hidden.pending;
    }
    mine.products.erase(mine.products.begin());
  }
  for (auto each = mine.sums.begin(); each != mine.sums.end();) {
    auto& [sums, hidden] = *each;
    if (hidden.pending != 0) {
      ++each;
      continue;
    }
    if (!all_nan(sums, hidden.values.size())) fail("the sums of a product were changed before the wait");
    std::copy(hidden.values.begin(), hidden.values.end(), sums);
    each = mine.sums.erase(each);
  }
}

void start_block(std::size_t threads) {
  Block& state = block();
  state.barriers.clear();
  std::fill(std::begin(state.named), std::end(state.named), NamedBarrier{});
  state.threads.assign(threads, Thread{});
  state.instructions.assign((threads + 127) / 128, {});
}
void end_thread() {
  const Thread& mine = thread();
  if (!mine.open_stores.empty() || !mine.stores.empty()) fail("a thread ended without waiting for its stores");
  if (!mine.open_products.empty() || !mine.products.empty()) fail("a thread ended without waiting for its products");
}
void end_block() {
  for (const auto& [address, barrier] : block().barriers) {
    if (!barrier.copies.empty()) fail("a block ended without waiting for its copies");
  }
  for (const NamedBarrier& barrier : block().named) {
    if (barrier.arrived != 0) fail("a block ended while threads had arrived at a named barrier that others never reached");
  }
  for (std::size_t i = 0; i < block().threads.size(); ++i) {
    if (block().threads[i].multiplications != block().instructions[i / 128].size())
      fail("a product that not all threads of a warpgroup compute");
  }
}

}  // namespace tessera::kernels::emulation
