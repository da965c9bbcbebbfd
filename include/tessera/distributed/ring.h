#pragma once

#include <utility>

#include <ATen/ops/empty_like.h>

#include <tessera/distributed/process_group.h>

namespace tessera {

/// Passes every rank's block around the ring and calls visit(owner, constant, sums) once per block, this rank's own first. Visitors must
/// not change `constant` [n, ...], which travels through two fixed buffers while the visitors compute. `sums` (may be undefined) travels
/// along with `constant`: every visitor adds to `sums` in place. In the end each block's `sums` return to the owner of the block, so the
/// return value holds what all ranks added for this rank's block. Both arguments may be overwritten, so the caller must not use them
/// afterwards. A process without other ranks makes one visit. Gradients are not recorded.
template <class Visit>
at::Tensor visit_ring(at::Tensor constant, at::Tensor sums, const ProcessGroup& group, Visit&& visit) {
  at::Tensor constant_next, sums_next;
  if (!group.alone()) {
    constant_next = at::empty_like(constant);
    if (sums.defined()) sums_next = at::empty_like(sums);
  }
  for (int step = 0; step < group.size(); ++step) {
    const bool more = step + 1 < group.size();
    ProcessGroup::Transfer transfer;
    if (more) transfer = group.pass_on(constant, constant_next);
    visit((group.rank() - step + group.size()) % group.size(), constant, sums);
    transfer.wait();
    if (more) std::swap(constant, constant_next);
    if (sums.defined() && !group.alone()) {
      group.pass_on(sums, sums_next).wait();
      std::swap(sums, sums_next);
    }
  }
  return sums;
}

}  // namespace tessera
