#pragma once

#include <tessera/distributed/process_group.h>

namespace tessera {

/// Returns a group of `size` ranks in which only this process exists, as rank `rank`. Its operations return tensors of
/// the shapes that the real ones would, without waiting for anybody; the values from other ranks are arbitrary. It
/// serves to measure the time and memory of one rank of many. With `size` 1 it returns a process alone.
ProcessGroup fake_process_group(int rank, int size);

}  // namespace tessera
