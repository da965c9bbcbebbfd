#pragma once

#include <cstdint>
#include <string>

namespace tessera {

/// Returns the value of `key` in a file with lines "key: value", such as /proc/meminfo; empty if there is no such line.
std::string value_in(const char* path, const std::string& key);

/// Returns the number of bytes of the machine's memory that could still be allocated: free memory plus reclaimable caches, within the
/// limits of the control groups.
std::int64_t free_memory();

/// Returns the number of bytes of the machine's memory, or of the smallest limit of the control groups. Does not depend on what is in use.
std::int64_t whole_memory();

/// Returns the number of bytes that the limits of this process's control groups (version 1 or 2) leave or, with `whole`, the smallest
/// limit. Without a limit, returns the greatest number. `list` is the file that lists the groups, and `tree` is the folder that contains
/// them.
std::int64_t left_in_control_groups(const std::string& list = "/proc/self/cgroup", const std::string& tree = "/sys/fs/cgroup",
                                    bool whole = false);

}  // namespace tessera
