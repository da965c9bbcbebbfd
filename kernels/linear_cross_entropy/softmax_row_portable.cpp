#define TESSERA_VECTOR 4
#define TESSERA_ROWS 6
#include "kernels/linear_cross_entropy/softmax_row.inc.h"

namespace tessera::kernels {

const SoftmaxRow kPortableSoftmaxRow = {log_sum_exp};

}  // namespace tessera::kernels
