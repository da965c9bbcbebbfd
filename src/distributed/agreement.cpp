#include <exception>

#include <ATen/ATen.h>

#include "src/distributed/agreement.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

constexpr double kDay = 24 * 3600;

// The last step of run_on_all_ranks() and run_on_rank0(): exchanges two numbers between the ranks. The first is the failed rank, counted
// from 1 and negated so that the maximum over ranks selects the lowest failed rank. The second is rank 0's result.
bool conclude(const ProcessGroup& group, const std::string& what, const std::exception_ptr& own, bool result) {
  const std::int64_t nobody = -group.size() - 1;
  at::Tensor outcome = at::tensor({own ? -group.rank() - std::int64_t{1} : nobody, std::int64_t{result}}, at::kLong);
  group.all_reduce(outcome, Reduction::max, kDay);
  if (own) std::rethrow_exception(own);
  const std::int64_t failed = outcome[0].item<std::int64_t>();
  if (failed != nobody)
    user_error("rank ", group.rank(), " stops because rank ", -failed - 1, " failed at ", what,
               " (its own message says why)");
  return outcome[1].item<std::int64_t>() != 0;
}

}  // namespace

void run_on_all_ranks(const ProcessGroup& group, const std::string& what, const std::function<void()>& body) {
  if (group.alone()) return body();
  std::exception_ptr own;
  try {
    body();
  } catch (...) {
    own = std::current_exception();
  }
  conclude(group, what, own, true);
}

bool run_on_rank0(const ProcessGroup& group, const std::string& what, const std::function<bool()>& body,
                  const std::function<void()>& others) {
  if (group.alone()) return body();
  std::exception_ptr own;
  bool result = false;
  try {
    if (group.first())
      result = body();
    else if (others)
      others();
  } catch (...) {
    own = std::current_exception();
  }
  return conclude(group, what, own, result);
}

}  // namespace tessera
