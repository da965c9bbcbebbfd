#define TESSERA_VECTOR 16
#define TESSERA_ROWS 14
#include "kernels/sparsify_group/sample.inc.h"

namespace tessera::kernels {

const SampleKernels kAvx512SampleKernels = {scratch_floats, forward, backward};

}  // namespace tessera::kernels
