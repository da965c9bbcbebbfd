#define TESSERA_VECTOR 4
#define TESSERA_ROWS 6
#include "kernels/sparsify_group/sample.inc.h"

namespace tessera::kernels {

const SampleKernels kPortableSampleKernels = {scratch_floats, forward, backward};

}  // namespace tessera::kernels
