#define TESSERA_VECTOR 8
#define TESSERA_ROWS 6
#include "kernels/attention/attend_rows.inc.h"

namespace tessera::kernels {

const HeadKernels kAvx2HeadKernels = kHeadKernels;

}  // namespace tessera::kernels
