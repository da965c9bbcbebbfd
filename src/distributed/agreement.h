#pragma once

#include <functional>
#include <string>

#include <tessera/distributed/process_group.h>

namespace tessera {

/// Runs `body` on every rank and returns when it has succeeded on all of them. On a rank where `body` throws, the
/// exception propagates; every other rank throws a UserError that names the first rank that failed. `what` describes the
/// work for that message: "reading the checkpoint". Without other ranks this only calls body().
void run_on_all_ranks(const ProcessGroup& group, const std::string& what, const std::function<void()>& body);

/// Runs `body` on rank 0 while the others wait for up to a day, or run `others` and then wait. Returns the result of `body` on every rank.
/// Throws as run_on_all_ranks() does.
bool run_on_rank0(const ProcessGroup& group, const std::string& what, const std::function<bool()>& body,
                  const std::function<void()>& others = {});

}  // namespace tessera
