#include "kernels/impact_scores/bitmaps.inc.h"

namespace tessera::kernels {

const ImpactScoreKernels kAvx2ImpactScores = {add_list_8,    add_list_16,    add_bitmap_8,
                                              add_bitmap_16, count_at_least, take_at_least};

}  // namespace tessera::kernels
