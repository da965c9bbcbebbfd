#pragma once

#include <tessera/distributed/process_group.h>

namespace tessera {

/// Returns a group of `size` ranks in which only this process exists, as rank `rank`. Its operations return tensors of
/// the same shapes as those of a real group, but do not wait for other ranks; the values from other ranks are arbitrary.
/// It is used to measure the time and memory of one rank of many. With `size` 1 the group has no connection (alone()).
ProcessGroup fake_process_group(int rank, int size);

}  // namespace tessera
