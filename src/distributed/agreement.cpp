#include <exception>

#include <ATen/ATen.h>

#include "src/base/host.h"
#include "src/distributed/agreement.h"
#include "src/distributed/connection.h"
#include <tessera/base/error.h>

namespace tessera {
double seconds_waited(const ProcessGroup& group) {
  return group.alone() ? 0 : group.connection()->seconds_waited.load();
}

// A failed rank is counted from its negative, so that the maximum over ranks selects the lowest failed rank.
Agreement::Agreement(const ProcessGroup& group, std::string what, std::exception_ptr own, std::vector<std::int64_t> numbers)
    : rank_(group.rank()), nobody_(group.size()), what_(std::move(what)), own_(std::move(own)), numbers_(std::move(numbers)) {
  std::vector<std::int64_t> all{own_ ? -rank_ : -nobody_};
  all.insert(all.end(), numbers_.begin(), numbers_.end());
  sent_ = at::tensor(all, at::kLong);
  if (!group.alone()) transfer_ = group.connection()->start_all_reduce(sent_, Reduction::max, kDay);
}

const std::vector<std::int64_t>& Agreement::maxima() {
  if (!sent_.defined()) return numbers_;
  transfer_.wait();
  const auto* all = sent_.const_data_ptr<std::int64_t>();
  failed_ = static_cast<int>(-all[0]);
  numbers_.assign(all + 1, all + sent_.numel());
  sent_.reset();
  return numbers_;
}

void Agreement::check() {
  maxima();
  if (own_) std::rethrow_exception(own_);
  if (failed_ != nobody_)
    user_error("rank ", rank_, " stops because rank ", failed_, " failed at ", what_, " (its own message says why)");
}

void run_on_all_ranks(const ProcessGroup& group, const std::string& what, const std::function<void()>& body) {
  if (group.alone()) return body();
  std::exception_ptr own;
  try {
    body();
  } catch (...) {
    own = std::current_exception();
  }
  Agreement(group, what, own, {}).check();
}

MachineRanks ranks_on_this_machine(const ProcessGroup& group) {
  const auto host = static_cast<std::int64_t>(std::hash<std::string>{}(machine_name()));
  const at::Tensor here = group.all_gather(at::full({1}, host, at::kLong)) == host;
  return {.count = static_cast<int>(here.sum().item<std::int64_t>()), .first = static_cast<int>(here.to(at::kInt).argmax().item<std::int64_t>())};
}

std::vector<at::Tensor> gather_on_rank0(const ProcessGroup& group, const at::Tensor& own) {
  if (group.alone()) return {own};
  std::vector<at::Tensor> sent{own.contiguous()};
  std::vector<std::vector<at::Tensor>> arrived;
  if (group.first()) {
    arrived.emplace_back();
    for (int rank = 0; rank < group.size(); ++rank) arrived[0].push_back(at::empty_like(sent[0]));
  }
  group.connection()->finish(*group.connection()->group->gather(arrived, sent, {}));
  return group.first() ? arrived[0] : std::vector<at::Tensor>{};
}

bool run_on_rank0(const ProcessGroup& group, const std::string& what, const std::function<bool()>& body,
                  const std::function<void()>& others) {
  if (group.alone()) return body();
  std::exception_ptr own;
  std::int64_t result = 0;
  try {
    if (group.first())
      result = body() ? 1 : 0;
    else if (others)
      others();
  } catch (...) {
    own = std::current_exception();
  }
  Agreement outcome(group, what, own, {result});
  outcome.check();
  return outcome.maxima().front() != 0;
}

}  // namespace tessera
