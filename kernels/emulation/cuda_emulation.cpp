#include "kernels/emulation/cuda_emulation.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <ucontext.h>
#include <utility>
#include <vector>

#include "kernels/emulation/hopper_emulation.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#else
#include <csetjmp>
#endif

namespace tessera::kernels::emulation {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kStackBytes = 256 * 1024;
#else
constexpr std::size_t kStackBytes = 64 * 1024;
#endif

constexpr std::align_val_t kSharedAlignment{1024};

struct Copy {
  void* to;
  const void* from;
};

enum class State { kReady, kAtWarpBarrier, kAtBlockBarrier, kWaiting, kDone };

struct Fiber {
  State state = State::kReady;
  bool started = false;
  dim3 index;
  unsigned exchanges = 0;
  std::function<bool()> ready;  // of a thread in the state kWaiting
  std::function<std::string()> reason;
  std::vector<Copy> open_copies;
  std::vector<std::vector<Copy>> committed_copies;
  ucontext_t context;
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
#else
  jmp_buf position;
#endif
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
};

struct Warp {
  Exchange slots[2];  // used in turn, so that a thread that still reads never sees values of the next operation
};

struct Machine {
  std::mutex one_grid_at_a_time;
  Schedule schedule = Schedule::kForward;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Warp> warps;
  struct FreeShared {
    void operator()(unsigned char* memory) const { ::operator delete[](memory, kSharedAlignment); }
  };
  std::unique_ptr<unsigned char[], FreeShared> shared;
  std::size_t shared_bytes = 0;
  const std::function<void()>* thread = nullptr;
  Fiber* running = nullptr;
  Place place;
  ucontext_t context;
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
  const void* stack_bottom = nullptr;
  std::size_t stack_size = 0;
#else
  jmp_buf position;
#endif
};

Machine& machine() {
  static Machine instance;
  return instance;
}

#if defined(__SANITIZE_ADDRESS__)
void enter(Fiber& fiber) {
  Machine& m = machine();
  __sanitizer_start_switch_fiber(&m.fake_stack, fiber.stack.get(), kStackBytes);
  swapcontext(&m.context, &fiber.context);
  __sanitizer_finish_switch_fiber(m.fake_stack, nullptr, nullptr);
}
void leave(Fiber& fiber) {
  Machine& m = machine();
  const bool for_good = fiber.state == State::kDone;
  __sanitizer_start_switch_fiber(for_good ? nullptr : &fiber.fake_stack, m.stack_bottom, m.stack_size);
  swapcontext(&fiber.context, &m.context);
  __sanitizer_finish_switch_fiber(fiber.fake_stack, nullptr, nullptr);
}
void arrive(Fiber&) {
  Machine& m = machine();
  __sanitizer_finish_switch_fiber(nullptr, &m.stack_bottom, &m.stack_size);
}
#else
// ucontext only creates a fiber's context and enters it for the first time. All later switches use _longjmp, because swapcontext makes a
// system call for the signal mask each time.
void enter(Fiber& fiber) {
  if (_setjmp(machine().position) != 0) return;
  if (fiber.started) _longjmp(fiber.position, 1);
  fiber.started = true;
  setcontext(&fiber.context);
}
void leave(Fiber& fiber) {
  if (_setjmp(fiber.position) == 0) _longjmp(machine().position, 1);
}
void arrive(Fiber&) {}
#endif

void fiber_main() {
  Fiber& fiber = *machine().running;
  arrive(fiber);
  (*machine().thread)();
  if (!fiber.open_copies.empty()) fail("a thread ended with copies it never committed");
  end_thread();
  fiber.state = State::kDone;
  leave(fiber);
}

void park(State state) {
  Fiber& fiber = *machine().running;
  fiber.state = state;
  leave(fiber);
}

void resume(Fiber& fiber) {
  Machine& m = machine();
  m.running = &fiber;
  m.place.thread = fiber.index;
  enter(fiber);
}

std::size_t in_order(std::size_t position, std::size_t count) {
  return machine().schedule == Schedule::kForward ? position : count - 1 - position;
}

/// Runs one warp until each of its threads has reached a block barrier or has ended. Returns whether any thread made
/// progress.
bool run_warp(std::size_t first, std::size_t lanes) {
  Machine& m = machine();
  bool progress = false;
  for (;;) {
    bool ran = false;
    for (std::size_t i = 0; i < lanes; ++i) {
      Fiber& fiber = *m.fibers[first + in_order(i, lanes)];
      if (fiber.state == State::kWaiting && fiber.ready()) fiber.state = State::kReady;
      if (fiber.state != State::kReady) continue;
      resume(fiber);
      ran = true;
    }
    std::size_t waiting = 0, done = 0;
    for (std::size_t i = 0; i < lanes; ++i) {
      waiting += m.fibers[first + i]->state == State::kAtWarpBarrier ? 1 : 0;
      done += m.fibers[first + i]->state == State::kDone ? 1 : 0;
    }
    if (waiting > 0 && waiting + done == lanes) {
      for (std::size_t i = 0; i < lanes; ++i) {
        Fiber& fiber = *m.fibers[first + i];
        if (fiber.state == State::kAtWarpBarrier) fiber.state = State::kReady;
      }
    } else if (!ran) {
      return progress;
    }
    progress = true;
  }
}

void run_block(std::size_t threads) {
  Machine& m = machine();
  for (;;) {
    bool progress = false;
    const std::size_t warps = (threads + 31) / 32;
    for (std::size_t i = 0; i < warps; ++i) {
      const std::size_t first = 32 * in_order(i, warps);
      progress = run_warp(first, threads - first < 32 ? threads - first : 32) || progress;
    }
    std::size_t waiting = 0, done = 0;
    for (std::size_t i = 0; i < threads; ++i) {
      waiting += m.fibers[i]->state == State::kAtBlockBarrier ? 1 : 0;
      done += m.fibers[i]->state == State::kDone ? 1 : 0;
    }
    if (done == threads) return end_block();
    if (waiting + done == threads) {
      for (std::size_t i = 0; i < threads; ++i) {
        if (m.fibers[i]->state == State::kAtBlockBarrier) m.fibers[i]->state = State::kReady;
      }
    } else if (!progress) {
      std::set<std::string> reasons;
      for (std::size_t i = 0; i < threads; ++i) {
        if (m.fibers[i]->state == State::kWaiting) reasons.insert(m.fibers[i]->reason());
      }
      std::string message = "deadlock: some threads wait at a barrier that others never reach";
      for (const std::string& reason : reasons) message += "; " + reason;
      fail(message);
    }
  }
}

void prepare_block(std::size_t threads) {
  Machine& m = machine();
  std::fill_n(m.shared.get(), m.shared_bytes, 0xff);  // bytes that are NaN when read as float32 or bfloat16
  start_block(threads);
  for (std::size_t i = 0; i < threads; ++i) {
    Fiber& fiber = *m.fibers[i];
    fiber.state = State::kReady;
    fiber.started = false;
    fiber.exchanges = 0;
    fiber.open_copies.clear();
    fiber.committed_copies.clear();
    fiber.index = dim3(static_cast<unsigned>(i));
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, fiber_main, 0);
  }
}

}  // namespace

void set_schedule(Schedule schedule) {
  machine().schedule = schedule;
}

void run(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes, const std::function<void()>& thread) {
  Machine& m = machine();
  const std::lock_guard<std::mutex> lock(m.one_grid_at_a_time);
  if (block.y != 1 || block.z != 1) fail("blocks must be one-dimensional");
  m.thread = &thread;
  m.place.block_size = block;
  m.place.grid_size = grid;
  m.shared.reset(new (kSharedAlignment) unsigned char[dynamic_shared_bytes]);
  m.shared_bytes = dynamic_shared_bytes;
  while (m.fibers.size() < block.x) m.fibers.push_back(std::make_unique<Fiber>());
  m.warps.resize((block.x + 31) / 32);
  const std::size_t blocks = std::size_t{grid.x} * grid.y * grid.z;
  for (std::size_t i = 0; i < blocks; ++i) {
    const auto block_index = static_cast<unsigned>(in_order(i, blocks));
    m.place.block = dim3(block_index % grid.x, block_index / grid.x % grid.y, block_index / grid.x / grid.y);
    prepare_block(block.x);
    run_block(block.x);
  }
}

const Place& current() {
  return machine().place;
}
unsigned char* dynamic_shared() {
  return machine().shared.get();
}
std::size_t dynamic_shared_bytes() {
  return machine().shared_bytes;
}
void wait_until(std::function<bool()> ready, std::function<std::string()> reason) {
  if (ready()) return;
  Fiber& fiber = *machine().running;
  fiber.ready = std::move(ready);
  fiber.reason = std::move(reason);
  park(State::kWaiting);
}
void fail(const std::string& message) {
  std::fprintf(stderr, "CUDA emulation: %s\n", message.c_str());
  std::abort();
}
void block_barrier() {
  park(State::kAtBlockBarrier);
}
void warp_barrier() {
  park(State::kAtWarpBarrier);
}

const Exchange& exchange(const void* mine, std::size_t bytes) {
  Machine& m = machine();
  Fiber& fiber = *m.running;
  if (bytes > 32) fail("an exchange of more than 32 bytes");
  Exchange& slot = m.warps[fiber.index.x / 32].slots[fiber.exchanges++ % 2];
  std::memcpy(slot.value[fiber.index.x % 32], mine, bytes);
  warp_barrier();
  return slot;
}

void require_alignment(const void* address, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0)
    fail("a word at an address that is not a multiple of its size");
}

void copy_later(void* to, const void* from) {
  require_alignment(to, 16);
  require_alignment(from, 16);
  machine().running->open_copies.push_back({to, from});
}

void commit_copies() {
  Fiber& fiber = *machine().running;
  fiber.committed_copies.push_back(std::exchange(fiber.open_copies, {}));
}

void wait_for_copies(int groups_left) {
  std::vector<std::vector<Copy>>& groups = machine().running->committed_copies;
  while (groups.size() > static_cast<std::size_t>(groups_left)) {
    for (const Copy& copy : groups.front()) {
      if (copy.from != nullptr) {
        std::memcpy(copy.to, copy.from, 16);
      } else {
        std::memset(copy.to, 0, 16);
      }
    }
    groups.erase(groups.begin());
  }
}

}  // namespace tessera::kernels::emulation
