#pragma once

#include <functional>
#include <string>

#include <tessera/distributed/process_group.h>

namespace tessera {

/// Runs `body` on every rank; returns when it went well on all. Where it throws, the exception goes on; the other ranks
/// throw a UserError that names the first such rank. `what` says what was done: "reading the checkpoint". Alone:
/// body().
void run_on_all_ranks(const ProcessGroup& group, const std::string& what, const std::function<void()>& body);

/// Runs `body` on rank 0 while the others wait, for up to a day; returns its result on every rank. Throws as
/// run_on_all_ranks().
bool run_on_rank0(const ProcessGroup& group, const std::string& what, const std::function<bool()>& body);

}  // namespace tessera
