#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include <tessera/distributed/process_group.h>

namespace tessera {

/// Returns the seconds that this rank has spent so far in operations on CPU tensors, mostly waiting for the other ranks. The time includes
/// the end of reductions by GradientReducer.
double seconds_waited(const ProcessGroup& group);

/// How many seconds ranks wait for one whose work may take long.
inline constexpr double kDay = 24 * 3600;

/// One all-reduce in which every rank says whether it has failed, and gives numbers of which all ranks get the maxima. It travels while the
/// ranks do other work, and waits for the others for up to a day.
class Agreement {
 public:
  /// Starts the all-reduce. `what` describes this rank's work for error messages: "reading data". `own` is the exception that this rank's
  /// work has thrown; null if it has succeeded. All ranks must give equally many numbers.
  Agreement(const ProcessGroup& group, std::string what, std::exception_ptr own, std::vector<std::int64_t> numbers);

  /// Waits, and returns the maxima of the numbers. Does not throw if a rank has failed.
  const std::vector<std::int64_t>& maxima();
  /// Waits. If this rank has failed, rethrows its exception; if another one has, throws a UserError that names the first such rank.
  void check();

 private:
  int rank_, nobody_;
  std::string what_;
  std::exception_ptr own_;
  std::vector<std::int64_t> numbers_;
  at::Tensor sent_;  // int64 [1 + numbers]; undefined once numbers_ holds the maxima
  int failed_ = 0;   // the first rank that has failed; nobody_ if there is none
  ProcessGroup::Transfer transfer_;
};

/// Runs `body` on every rank and returns when it has succeeded on all of them. On a rank where `body` throws, the
/// exception propagates; every other rank throws a UserError that names the first rank that failed. `what` describes the
/// work for that message: "reading the checkpoint". Without other ranks this only calls body().
void run_on_all_ranks(const ProcessGroup& group, const std::string& what, const std::function<void()>& body);

/// The ranks on this rank's machine.
struct MachineRanks {
  int count = 1, first = 0;  // their number, and the lowest of them
};
/// Collective.
MachineRanks ranks_on_this_machine(const ProcessGroup& group);

/// Returns the tensors of all ranks on rank 0, in rank order, and nothing on the others. CPU tensors of equal shape and type.
std::vector<at::Tensor> gather_on_rank0(const ProcessGroup& group, const at::Tensor& own);

/// Runs `body` on rank 0 while the others wait for up to a day, or run `others` and then wait. Returns the result of `body` on every rank.
/// Throws as run_on_all_ranks() does.
bool run_on_rank0(const ProcessGroup& group, const std::string& what, const std::function<bool()>& body,
                  const std::function<void()>& others = {});

}  // namespace tessera
