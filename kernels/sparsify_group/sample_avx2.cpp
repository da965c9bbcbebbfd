#define TESSERA_VECTOR 8
#define TESSERA_ROWS 6
#include "kernels/sparsify_group/sample.inc.h"

namespace tessera::kernels {

const SampleKernels kAvx2SampleKernels = {scratch_floats, forward, backward};

}  // namespace tessera::kernels
