#pragma once

#include <tessera/distributed/process_group.h>

namespace tessera {

/// A group of `size` ranks of which only this process exists, as rank `rank`. Its operations take and give tensors of
/// the shapes that the real ones would, without waiting for anybody; what the others would have sent is arbitrary. For
/// measuring what one rank of many needs. `size` 1: a process alone.
ProcessGroup fake_process_group(int rank, int size);

}  // namespace tessera
