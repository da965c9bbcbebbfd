#pragma once

namespace tessera {

/// Makes the operators that this thread calls run on this thread alone. at::set_num_threads() would also limit the other threads, because it
/// changes MKL's number of threads for the whole process.
void stay_on_this_thread();

}  // namespace tessera
