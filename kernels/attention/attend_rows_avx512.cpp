#define TESSERA_VECTOR 16
#define TESSERA_ROWS 14
#include "kernels/attention/attend_rows.inc.h"

namespace tessera::kernels {

const HeadKernels kAvx512HeadKernels = kHeadKernels;

}  // namespace tessera::kernels
