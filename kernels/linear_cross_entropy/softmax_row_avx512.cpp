#define TESSERA_VECTOR 16
#define TESSERA_ROWS 14
#include "kernels/linear_cross_entropy/softmax_row.inc.h"

namespace tessera::kernels {

const SoftmaxRow kAvx512SoftmaxRow = {log_sum_exp};

}  // namespace tessera::kernels
